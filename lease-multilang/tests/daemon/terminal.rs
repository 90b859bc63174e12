//! The daemon's status line.

use lease_test_servers::tools::tool;

use crate::daemon::Daemon;
use crate::place::{BINARY, Place, raw};

#[tokio::test(flavor = "multi_thread")]
async fn terminal_shows_a_status_line() {
    let (Some(command), Some(python)) = (raw(), tool("python3", &[])) else { return };
    let place = Place::of_shards(2, command).await;
    let producer = place.stream.produce();
    let file = place.properties("one").display().to_string();
    let terminal = "import pty, sys; pty.spawn(sys.argv[1:])";
    let in_terminal = format!("exec {} -c '{terminal}' {BINARY} -p {file} >&2", python.display());

    let terminal = Daemon::start("sh", &["-c".to_owned(), in_terminal], place.environment());

    terminal.until_logged("2 shards · ").await;
    producer.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipe_shows_no_status_line() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(2, command).await;
    let daemon = place.start("one");
    place.until("both shards have a child", &[&daemon], |notes| notes.readers().len() == 2).await;

    let log = daemon.stop().await;

    assert!(!log.contains('\r') && !log.contains("shards · "), "{log}");
}
