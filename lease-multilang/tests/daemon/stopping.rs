//! Orderly and immediate stops of a daemon.

use lease_test_servers::tools::tool;
use rustix::process::Signal;
use tokio::net::TcpListener;

use crate::daemon::{Daemon, is_there};
use crate::notes::Notes;
use crate::place::{BINARY, Place, raw};

fn has_two_readers(notes: &Notes) -> bool {
    notes.readers().len() == 2
}

fn has_fault(notes: &Notes) -> bool {
    !notes.of("fault").is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn orderly_stop_repeats_no_record_and_leaves_no_child() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(4, command).await;
    let producer = place.stream.produce();
    let first = place.start("first");
    let all_read = |notes: &Notes| notes.readers().len() == 4 && notes.distinct() >= 100;
    place.until("100 records are read, of all shards", &[&first], all_read).await;
    first.signal(Signal::TERM);
    let mut first = first;
    assert!(first.ended().await.success(), "{}", first.log());
    assert!(first.log().contains("initial_position=\"TRIM_HORIZON\""), "{}", first.log());
    let notes = place.notes();
    assert_eq!(notes.of("requested").len(), 4, "{notes}");
    assert_eq!(notes.of("lost").len(), 4, "{notes}");
    assert_eq!(notes.of("gone").len(), 4, "each child reads the end of its stdin\n{notes}");
    assert!(!notes.children().into_iter().any(is_there));

    let second = place.start("second");
    producer.has_put_more(50).await;
    let put = producer.end().await;
    let total: usize = put.values().sum();
    let all = |notes: &Notes| notes.distinct() >= total;
    let notes = place.until("all records are read", &[&second], all).await;

    assert_eq!(notes.of("record").len(), total, "{notes}");
    notes.are_right(&put, &place.stream.shards().await);
    second.stop().await;
}

/// The child requests no other checkpoint, so the second child starts at the checkpoint of this request.
#[tokio::test(flavor = "multi_thread")]
async fn child_checkpoints_before_its_shard_is_handed_over() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(1, command).await.with_variable("LATE", "1");
    let producer = place.stream.produce();
    producer.has_put_more(20).await;
    let total: usize = producer.end().await.values().sum();
    let first = place.start("first");
    let all = |notes: &Notes| notes.of("record").len() == total;
    place.until("all records are read", &[&first], all).await;
    let second = place.start("second");
    second.until_logged("worker started").await;
    let log = || second.log().contains("members=2");
    second.until("the second daemon counts", log).await;

    let log = first.stop().await;

    let handed = |notes: &Notes| notes.of("begun").len() == 2;
    let notes = place.until("the second daemon reads", &[&second], handed).await;
    assert_eq!(notes.of("requested").len(), 1, "{notes}\n{log}");
    let last = notes.of("record").last().unwrap().sequence();
    assert_eq!(notes.of("begun")[1].start_position(), last.as_str(), "{notes}\n{log}");
    assert_eq!(notes.of("record").len(), total, "{notes}");
    second.stop().await;
}

/// GNU `timeout` signals the process and then its process group, so the daemon gets two signals.
#[tokio::test(flavor = "multi_thread")]
async fn two_signals_at_once_cause_one_orderly_stop() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(2, command).await;
    let mut daemon = place.start("one");
    place.until("both shards have a child", &[&daemon], has_two_readers).await;

    // Pauses the daemon, so that both signals are pending when it continues.
    daemon.signal(Signal::STOP);
    daemon.signal(Signal::TERM);
    daemon.signal(Signal::INT);
    daemon.signal(Signal::CONT);

    assert!(daemon.ended().await.success(), "{}", daemon.log());
    assert_eq!(place.notes().of("requested").len(), 2, "each child gets shutdownRequested");
}

#[tokio::test(flavor = "multi_thread")]
async fn second_signal_ends_daemon_and_children_at_once() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(2, command).await.with_fault("hangs");
    let producer = place.stream.produce();
    let mut daemon = place.start("one");
    place.until("one child hangs", &[&daemon], has_fault).await;
    producer.end().await;

    daemon.signal(Signal::INT);
    daemon.until_logged("stopping").await;
    // The daemon ignores a second signal within the first second.
    let status = loop {
        if let Some(status) = daemon.ended_soon().await {
            break status;
        }
        daemon.signal(Signal::INT);
    };

    assert_eq!(status.code(), Some(1), "{}", daemon.log());
    assert!(daemon.log().contains("ended at once by a second signal"), "{}", daemon.log());
    killed_children_exit(&place, &daemon).await;
}

/// A killed process exits some time after its signal was sent.
async fn killed_children_exit(place: &Place, daemon: &Daemon) {
    let children = place.notes().children();
    let gone = || !children.iter().any(|child| is_there(*child));
    daemon.until("the children exit", gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_stops_daemon_that_waits_for_its_tables() {
    let Some(command) = raw() else { return };
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("dynamoDBEndpoint = http://{}", silent.local_addr().unwrap());
    let place = Place::of_shards(1, command).await.with(&endpoint);
    let mut daemon = place.start("one");
    let _connection = silent.accept().await.unwrap();

    daemon.signal(Signal::TERM);

    // A daemon that waited for its tables would exit with an error.
    assert!(daemon.ended().await.success(), "{}", daemon.log());
    assert!(daemon.log().contains("nothing was started"), "{}", daemon.log());
}

fn start_with_hang_ups(place: &Place, disposition: &str) -> Option<Daemon> {
    let python = tool("python3", &[])?;
    let program = "import os, signal, sys\n\
         signal.signal(signal.SIGHUP, getattr(signal, sys.argv[1]))\n\
         os.execv(sys.argv[2], sys.argv[2:])";
    let file = place.properties("one").display().to_string();
    let arguments = ["-c", program, disposition, BINARY, "-p", &file].map(str::to_owned);
    Some(Daemon::start(python, &arguments, place.environment()))
}

#[tokio::test(flavor = "multi_thread")]
async fn hang_up_stops_daemon_orderly() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(2, command).await;
    let Some(mut daemon) = start_with_hang_ups(&place, "SIG_DFL") else { return };
    place.until("both shards have a child", &[&daemon], has_two_readers).await;

    daemon.signal(Signal::HUP);

    assert!(daemon.ended().await.success(), "{}", daemon.log());
    let notes = place.notes();
    assert_eq!(notes.of("requested").len(), 2, "{notes}");
    assert!(!notes.children().into_iter().any(is_there));
}

#[tokio::test(flavor = "multi_thread")]
async fn ignored_hang_up_does_not_stop_daemon() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(2, command).await;
    let Some(daemon) = start_with_hang_ups(&place, "SIG_IGN") else { return };
    place.until("both shards have a child", &[&daemon], has_two_readers).await;

    daemon.signal(Signal::HUP);

    let producer = place.stream.produce();
    producer.has_put_more(20).await;
    let put = producer.end().await;
    let total: usize = put.values().sum();
    let is_read = |notes: &Notes| notes.distinct() >= total;
    place.until("all records are read", &[&daemon], is_read).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_child_is_killed_after_the_grace_time() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(2, command).await.with_fault("hangs");
    let place = place.with("shutdownGraceMillis = 10000");
    let producer = place.stream.produce();
    let mut daemon = place.start("one");
    // A child that has not started yet gets no `shutdownRequested`.
    let both = |notes: &Notes| has_fault(notes) && has_two_readers(notes);
    place.until("one child hangs, and the other one reads", &[&daemon], both).await;
    producer.end().await;

    daemon.signal(Signal::TERM);

    // The child hangs for ever, so the daemon exits only after the grace time.
    assert!(daemon.ended().await.success(), "{}", daemon.log());
    assert!(daemon.log().contains("children still running"), "{}", daemon.log());
    killed_children_exit(&place, &daemon).await;
    assert_eq!(
        place.notes().of("requested").len(),
        1,
        "only the other child gets shutdownRequested"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[cfg(target_os = "linux")]
async fn hanging_child_dies_with_a_killed_daemon() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(1, command).await.with_fault("hangs");
    let producer = place.stream.produce();
    let daemon = place.start("one");
    place.until("the child hangs", &[&daemon], has_fault).await;
    producer.end().await;
    let child = place.notes().of("fault")[0].child;

    daemon.signal(Signal::KILL);

    daemon.until("the child exits", || !is_there(child)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_child_ends_daemon_with_on_child_failure_exit() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(2, command).await.with("onChildFailure = exit");
    let place = place.with_fault("dies in a line");
    let mut daemon = place.start("one");
    place.until("both shards have a child", &[&daemon], has_two_readers).await;

    let producer = place.stream.produce();
    let status = daemon.ended().await;

    producer.end().await;
    assert_eq!(status.code(), Some(1), "{}", daemon.log());
    assert!(daemon.log().contains("a child has failed"), "{}", daemon.log());
    assert_eq!(
        place.notes().of("requested").len(),
        1,
        "only the other child gets shutdownRequested"
    );
}
