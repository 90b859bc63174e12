//! Tests captured log lines in a separate program, since other tests would add subscribers.

use std::thread;

use lease_test_servers::warnings::Warnings;
use tracing::warn;

fn log() {
    warn!("the store does not answer");
}

#[test]
fn line_is_captured_after_another_thread_has_logged_it() {
    let (log_lines, _listening) = Warnings::listen();
    thread::spawn(log).join().unwrap();

    log();

    assert_eq!(log_lines.lines().len(), 1);
}
