//! Children that break the protocol: the others do not notice.

use aws_sdk_dynamodb::types::AttributeValue;

use crate::daemon::is_there;
use crate::notes::Notes;
use crate::place::{Place, raw};

/// Has one of two children misbehave once, until all is read; answers what is in the log.
async fn trouble(which: &str, restarts: usize, properties: &str) -> Option<(Place, String)> {
    let place = Place::of_shards(2, raw()?).await.with(properties);
    let file = place.folder.join("trouble").display().to_string();
    let place = place.with_variable("TROUBLE", which).with_variable("TROUBLED", "0");
    let place = place.with_variable("TROUBLE_FILE", file);
    let producer = place.stream.produce();
    let daemon = place.start("one");
    let begun = place.until("both begin", &[&daemon], |notes| notes.readers().len() == 2).await;
    let in_trouble = |notes: &Notes| !notes.of("trouble").is_empty();
    place.until("the trouble comes", &[&daemon], in_trouble).await;
    producer.has_put_more(100).await;
    let put = producer.end().await;
    let total: usize = put.values().sum();
    let notes = place.until("all is read", &[&daemon], |notes| notes.distinct() >= total).await;

    notes.are_right(&put, &place.stream.shards().await);
    assert_eq!(notes.of("begun").len(), 2 + restarts, "{notes}\n{}", daemon.log());
    let other = |notes: &Notes| {
        let mut readers = notes.readers().into_iter();
        readers.find(|(shard, _)| !shard.ends_with('0')).map(|(_, child)| child)
    };
    assert_eq!(other(&notes), other(&begun), "the other child is the same\n{notes}");
    assert!(daemon.most_memory() < 64 * 1024, "it had {} kB", daemon.most_memory());
    let troubled = notes.of("trouble")[0].child;
    assert_eq!(is_there(troubled), restarts == 0, "what has failed is killed, and nothing else");
    let log = daemon.stop().await;
    Some((place, log))
}

fn has(log: &str, text: &str) {
    assert!(log.contains(text), "{text:?} is not in\n{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_on_stderr_is_cut_and_blocks_nothing() {
    let Some((_, log)) = trouble("floods stderr", 0, "").await else { return };
    has(&log, "lines dropped");
    assert!(log.len() < 16 * 1024 * 1024, "{} bytes of log", log.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_child_is_killed_after_the_timeout() {
    let Some((_, log)) = trouble("hangs", 1, "timeoutInSeconds = 10").await else { return };
    has(&log, "child did not answer processRecords within 10s");
}

#[tokio::test(flavor = "multi_thread")]
async fn child_that_dies_within_a_line_is_replaced() {
    let Some((_, log)) = trouble("dies in a line", 1, "").await else { return };
    has(&log, "child exited early, with exit status: 3");
    has(&log, "is not JSON");
}

#[tokio::test(flavor = "multi_thread")]
async fn child_that_closes_stdout_is_replaced() {
    let Some((_, log)) = trouble("closes stdout", 1, "").await else { return };
    has(&log, "it closed its stdout");
}

#[tokio::test(flavor = "multi_thread")]
async fn child_with_a_wrong_answer_is_replaced() {
    let Some((_, log)) = trouble("answers wrongly", 1, "").await else { return };
    has(&log, "child was sent processRecords, and answered for Some(\"initialize\")");
}

/// Each asks for more checkpoints than there is room for their replies.
#[tokio::test(flavor = "multi_thread")]
async fn child_that_only_sends_is_replaced() {
    for which in ["asks on and on", "asks on and on afterwards"] {
        let Some((_, log)) = trouble(which, 1, "").await else { return };
        has(&log, "child sent 64 messages and read none");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn child_that_reads_no_reply_is_killed_after_the_timeout() {
    for which in ["reads no reply", "reads no reply afterwards"] {
        let Some((_, log)) = trouble(which, 1, "timeoutInSeconds = 10").await else { return };
        has(&log, "child did not read a message within 10s");
    }
}

/// Without a limit, it has all the time that it likes while its shard is its own.
#[tokio::test(flavor = "multi_thread")]
async fn child_that_reads_nothing_is_killed_after_its_lease_is_lost() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(1, command).await;
    let file = place.folder.join("trouble").display().to_string();
    let place = place.with_variable("TROUBLE", "reads no reply afterwards");
    let place = place.with_variable("TROUBLED", "0").with_variable("TROUBLE_FILE", file);
    let daemon = place.start("one");
    place.put("small", 1).await;
    // Only then is the daemon stuck in a reply when the shard is lost.
    let is_full = |notes: &Notes| !notes.of("full").is_empty();
    let notes = place.until("its stdin is full", &[&daemon], is_full).await;

    let shard = AttributeValue::S(notes.of("trouble")[0].shard.clone());
    let row = place.dynamodb().delete_item().table_name("shop").key("leaseKey", shard);
    row.send().await.unwrap();

    daemon.until_logged("child did not read a message within 5s").await;
    let child = notes.of("trouble")[0].child;
    daemon.until("the child is gone", || !is_there(child)).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_refused_checkpoints_are_logged_a_few_times() {
    let Some((place, log)) = trouble("asks for too much", 0, "").await else { return };
    assert_eq!(place.notes().of("refused").len(), 100, "{}", place.notes());
    let told = log.lines().filter(|line| line.contains("WARN")).count();
    assert!((1..20).contains(&told), "{told} times\n{log}");
    has(&log, "checkpoints of child not written in total");
    has(&log, "checkpoints=100");
}

/// Its checkpoint names no record: it means those that it has read.
#[tokio::test(flavor = "multi_thread")]
async fn late_checkpoint_does_not_cover_the_next_batch() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(1, command).await.with("maxRecords = 1");
    let file = place.folder.join("trouble").display().to_string();
    let place = place.with_variable("TROUBLE", "asks late").with_variable("TROUBLED", "0");
    let place = place.with_variable("TROUBLE_FILE", file);
    let daemon = place.start("one");
    place.put("small", 1).await;
    place.until("it asks late", &[&daemon], |notes| !notes.of("trouble").is_empty()).await;

    place.put("large", 300_000).await;
    let is_answered = |notes: &Notes| notes.of("checkpoint").len() > 1;
    place.until("that is answered", &[&daemon], is_answered).await;
    place.put("last", 1).await;
    let is_read =
        |notes: &Notes| notes.of("record").iter().any(|note| note.partition_key() == "last");
    let notes = place.until("another goes on", &[&daemon], is_read).await;

    let keys: Vec<_> =
        notes.of("record").iter().map(|note| note.partition_key().to_owned()).collect();
    assert_eq!(keys, ["small", "large", "last"], "{notes}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_long_line_is_ignored() {
    let Some((_, log)) = trouble("writes a long line", 0, "").await else { return };
    has(&log, "the line has 13107200 bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn line_that_is_not_utf8_is_ignored() {
    let Some((_, log)) = trouble("is not utf-8", 0, "").await else { return };
    has(&log, "the line is not UTF-8");
}

#[tokio::test(flavor = "multi_thread")]
async fn line_that_is_not_a_message_is_logged_a_few_times() {
    let Some((_, log)) = trouble("is not json", 0, "").await else { return };
    let told = log.matches("WARN").count();
    assert!(log.contains("print number 0"), "{log}");
    assert!(told < 20, "{told} warnings\n{log}");
    has(&log, "lines=102");
}

#[tokio::test(flavor = "multi_thread")]
async fn process_that_a_child_started_is_killed_with_it() {
    let Some((place, _)) = trouble("starts another", 1, "").await else { return };
    let started = std::fs::read_to_string(place.folder.join("trouble")).unwrap();
    assert!(!is_there(started.trim().parse().unwrap()), "it goes on");
}
