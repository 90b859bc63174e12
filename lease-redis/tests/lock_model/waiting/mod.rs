//! How waiters of one key wake up: by messages, and after the remaining ttl that an answer contained.
//!
//! While the key is free, one of these is true for each waiter: it asks again, a message to it is on its way,
//! or its sleep ends within one ttl after the last heartbeat. The messages of releases must even arrive,
//! unless the subscription breaks. Start with `setup`, then `state`.

mod process;
mod server;
mod setup;
mod state;
mod step;
mod tests;
