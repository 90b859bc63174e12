//! How waiters of one key wake up: by messages, and after the remaining ttl in an answer.
//!
//! While the key is free, each waiter sends another request, or a message to it is on its way, or its sleep
//! ends within one ttl after the last heartbeat. Start with `setup`, then `state`.

mod process;
mod server;
mod setup;
mod state;
mod step;
mod tests;
