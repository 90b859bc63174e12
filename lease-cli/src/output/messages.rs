//! Messages for people, on stderr: the texts of commands, and the log of the library.

use std::io::{Write, stderr};

use lease_core::{Holder, LeaseKey};
use tracing::Level;

use crate::output::verbosity::Verbosity;
use crate::started::start_of;

/// Prints a message. Nothing depends on its arrival.
pub(crate) fn say(message: &str) {
    drop(writeln!(stderr(), "lease: {message}"));
}

/// Starts the log of the library.
pub(crate) fn log(verbosity: Verbosity) {
    let level = match verbosity {
        Verbosity::Quiet => Level::ERROR,
        Verbosity::Normal => Level::WARN,
        Verbosity::Verbose => Level::INFO,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(false)
        .without_time()
        // The report of a failed write would go to stderr, too, and panic.
        .log_internal_errors(false)
        .with_writer(stderr);
    // Cannot fail, because the program sets no other subscriber.
    drop(subscriber.try_init());
}

/// Says who holds `key`, for how long still, and since when.
pub(crate) fn held_by(key: &LeaseKey, holder: &Holder) -> String {
    let start = start_of(&holder.lessee).map(|start| format!(", which started at {start}"));
    let token = holder.token.map(|token| format!(", with token {token}"));
    let left = holder
        .expires_in
        .map(|left| format!(", for another {} s unless it is extended", left.as_secs() + 1));
    let parts = [start, token, left].map(Option::unwrap_or_default).concat();
    format!("{key} is held by {}{parts}", holder.lessee)
}
