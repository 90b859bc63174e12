//! Signals to processes.

use std::process::Command;

/// Sends a signal such as `-STOP` to the process `id`.
///
/// # Panics
///
/// Panics if the process has ended.
pub(crate) fn signal(id: u32, name: &str) {
    let sent = Command::new("kill").args([name, &id.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "signal {name} to {id}");
}
