//! How waiters of one key wake up: by messages, and after the remaining ttl that an answer contained.
//!
//! While the key is free, each waiter asks again, a message to it is on its way, or its sleep ends: no later
//! than one ttl after the last heartbeat. The messages of releases are checked more strictly: they arrive,
//! unless the subscription breaks. Start with `setup`, then `state`.

mod process;
mod server;
mod setup;
mod state;
mod step;
mod tests;
