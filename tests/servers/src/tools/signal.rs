//! Signals to processes.

use std::process::Command;
#[cfg(feature = "postgres")]
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// Sends a signal such as `-CONT` to the process `id`.
///
/// # Panics
///
/// Panics if the process has ended.
pub(crate) fn signal(id: u32, name: &str) {
    let sent = Command::new("kill").args([name, &id.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "signal {name} to {id}");
}

/// Sends a signal to the process `id`, which may have ended.
#[cfg(feature = "postgres")]
pub(crate) fn signal_if_running(id: u32, name: &str) {
    drop(Command::new("kill").args([name, &id.to_string()]).stderr(Stdio::null()).status());
}

/// Stops the process `id`, and waits until all its threads have stopped. The signal stops the
/// threads one after another. A thread that runs meanwhile may still answer a request.
///
/// # Panics
///
/// Panics if the process has ended, or if a thread still runs after a minute.
pub(crate) fn suspend(id: u32) {
    signal(id, "-STOP");
    wait_until_suspended(id);
}

/// Waits until all threads of the process `id` have stopped, or the process has ended.
pub(crate) fn wait_until_suspended(id: u32) {
    for _ in 0..60_000 {
        if !has_running_thread(id) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("process {id} does not stop");
}

/// The format is in
/// [proc_pid_stat(5)](https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html).
fn has_running_thread(id: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{id}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name of the program is in parentheses, and may contain spaces.
        let state = stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
        state.is_some_and(|state| !['T', 't', 'Z', 'X'].contains(&state))
    })
}
