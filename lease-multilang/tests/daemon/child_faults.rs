//! Children that break the protocol, without effect on other children.

use aws_sdk_dynamodb::types::AttributeValue;

use crate::daemon::is_there;
use crate::notes::Notes;
use crate::place::{Place, raw};

/// One of two children injects `fault` once. The daemon must start `restarts` further children.
async fn run_with_fault(fault: &str, restarts: usize, properties: &str) -> Option<(Place, String)> {
    let place = Place::of_shards(2, raw()?).await.with(properties).with_fault(fault);
    let producer = place.stream.produce();
    let daemon = place.start("one");
    let both = |notes: &Notes| notes.readers().len() == 2;
    let begun = place.until("both shards have a child", &[&daemon], both).await;
    place.until("the fault is injected", &[&daemon], has_fault).await;
    producer.has_put_more(100).await;
    let put = producer.end().await;
    let total: usize = put.values().sum();
    let all = |notes: &Notes| notes.distinct() >= total;
    let notes = place.until("all records are read", &[&daemon], all).await;

    notes.are_right(&put, &place.stream.shards().await);
    assert_eq!(notes.of("begun").len(), 2 + restarts, "{notes}\n{}", daemon.log());
    let other = |notes: &Notes| {
        let mut readers = notes.readers().into_iter();
        readers.find(|(shard, _)| !shard.ends_with('0')).map(|(_, child)| child)
    };
    assert_eq!(other(&notes), other(&begun), "the other child was replaced\n{notes}");
    assert!(daemon.most_memory() < 64 * 1024, "peak memory: {} kB", daemon.most_memory());
    let faulty = notes.of("fault")[0].child;
    assert_eq!(is_there(faulty), restarts == 0, "a child is killed only if it failed");
    let log = daemon.stop().await;
    Some((place, log))
}

fn has_fault(notes: &Notes) -> bool {
    !notes.of("fault").is_empty()
}

fn has(log: &str, text: &str) {
    assert!(log.contains(text), "{text:?} is not in\n{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_on_stderr_is_cut_and_does_not_block() {
    let Some((_, log)) = run_with_fault("floods stderr", 0, "").await else { return };
    has(&log, "lines dropped");
    assert!(log.len() < 16 * 1024 * 1024, "{} bytes of log", log.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_child_is_killed_after_the_timeout() {
    let Some((_, log)) = run_with_fault("hangs", 1, "timeoutInSeconds = 10").await else { return };
    has(&log, "child did not answer processRecords within 10s");
}

#[tokio::test(flavor = "multi_thread")]
async fn child_that_dies_within_a_line_is_replaced() {
    let Some((_, log)) = run_with_fault("dies in a line", 1, "").await else { return };
    has(&log, "child exited early, with exit status: 3");
    has(&log, "is not JSON");
}

#[tokio::test(flavor = "multi_thread")]
async fn child_that_closes_stdout_is_replaced() {
    let Some((_, log)) = run_with_fault("closes stdout", 1, "").await else { return };
    has(&log, "it closed its stdout");
}

#[tokio::test(flavor = "multi_thread")]
async fn child_with_a_wrong_answer_is_replaced() {
    let Some((_, log)) = run_with_fault("answers wrongly", 1, "").await else { return };
    has(&log, "child was sent processRecords, and answered for Some(\"initialize\")");
}

/// The replies to the child's checkpoint requests do not fit into its pipe.
#[tokio::test(flavor = "multi_thread")]
async fn child_that_sends_without_reading_is_replaced() {
    for fault in ["requests without end", "requests without end afterwards"] {
        let Some((_, log)) = run_with_fault(fault, 1, "").await else { return };
        has(&log, "child sent 64 messages and read none");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn child_that_reads_no_reply_is_killed_after_the_timeout() {
    for fault in ["reads no reply", "reads no reply afterwards"] {
        let Some((_, log)) = run_with_fault(fault, 1, "timeoutInSeconds = 10").await else {
            return;
        };
        has(&log, "child did not read a message within 10s");
    }
}

/// Without `timeoutInSeconds`, a child has no time limit until its lease is lost.
#[tokio::test(flavor = "multi_thread")]
async fn child_that_does_not_read_is_killed_after_lease_loss() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(1, command).await.with_fault("reads no reply afterwards");
    let daemon = place.start("one");
    place.put("small", 1).await;
    // The daemon waits for the child to read a reply from now on.
    let is_full = |notes: &Notes| !notes.of("full").is_empty();
    let notes = place.until("the child's stdin is full", &[&daemon], is_full).await;

    let shard = AttributeValue::S(notes.of("fault")[0].shard.clone());
    let row = place.dynamodb().delete_item().table_name("shop").key("leaseKey", shard);
    row.send().await.unwrap();

    daemon.until_logged("child did not read a message within 5s").await;
    let child = notes.of("fault")[0].child;
    daemon.until("the child exits", || !is_there(child)).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_refused_checkpoints_are_logged_a_few_times() {
    let Some((place, log)) = run_with_fault("requests invalid checkpoints", 0, "").await else {
        return;
    };
    assert_eq!(place.notes().of("refused").len(), 100, "{}", place.notes());
    let warnings = log.lines().filter(|line| line.contains("WARN")).count();
    assert!((1..20).contains(&warnings), "{warnings} warnings\n{log}");
    has(&log, "total of child's unwritten checkpoints");
    has(&log, "checkpoints=100");
}

/// A checkpoint without a number covers only the batches that the daemon had completely sent at the request.
#[tokio::test(flavor = "multi_thread")]
async fn late_checkpoint_does_not_cover_the_next_batch() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(1, command).await.with("maxRecords = 1");
    let place = place.with_fault("requests late");
    let daemon = place.start("one");
    place.put("small", 1).await;
    place.until("the fault is injected", &[&daemon], has_fault).await;

    place.put("large", 300_000).await;
    let is_answered = |notes: &Notes| notes.of("checkpoint").len() > 1;
    place.until("the late request has a reply", &[&daemon], is_answered).await;
    place.put("last", 1).await;
    let is_read =
        |notes: &Notes| notes.of("record").iter().any(|note| note.partition_key() == "last");
    let notes = place.until("another child reads the last record", &[&daemon], is_read).await;

    let keys: Vec<_> =
        notes.of("record").iter().map(|note| note.partition_key().to_owned()).collect();
    assert_eq!(keys, ["small", "large", "last"], "{notes}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_long_line_is_ignored() {
    let Some((_, log)) = run_with_fault("writes a long line", 0, "").await else { return };
    has(&log, "the line has 13107200 bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn line_that_is_not_utf8_is_ignored() {
    let Some((_, log)) = run_with_fault("is not utf-8", 0, "").await else { return };
    has(&log, "the line is not UTF-8");
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_are_not_messages_are_logged_a_few_times() {
    let Some((_, log)) = run_with_fault("is not json", 0, "").await else { return };
    let warnings = log.matches("WARN").count();
    assert!(log.contains("print number 0"), "{log}");
    assert!(warnings < 20, "{warnings} warnings\n{log}");
    has(&log, "lines=102");
}

#[tokio::test(flavor = "multi_thread")]
async fn process_that_a_failed_child_started_is_killed() {
    let Some((place, _)) = run_with_fault("starts another", 1, "").await else { return };
    let started = std::fs::read_to_string(place.fault_file()).unwrap();
    assert!(!is_there(started.trim().parse().unwrap()), "the started process still runs");
}
