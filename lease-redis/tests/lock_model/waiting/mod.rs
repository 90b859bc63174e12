//! How waiters of one key wake up: subscriptions, marks, messages, and the time left that they are told.
//!
//! Whenever the key is free, each waiter looks again, has a message on its way, or was told a time left
//! that passes no later than one ttl after the last renewal. The messages of releases are checked more
//! strictly: they arrive, unless the subscription breaks. Start with `setup`, then `state`.

mod process;
mod server;
mod setup;
mod state;
mod step;
mod tests;
