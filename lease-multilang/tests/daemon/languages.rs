//! Record processors that use the unchanged client libraries of other languages.

use std::collections::BTreeSet;

use lease_test_servers::tools::tool;
use rustix::process::Signal;

use crate::daemon::{is_there, kill};
use crate::notes::Notes;
use crate::place::{Place, raw, script};

fn python(script: &str) -> Option<String> {
    let client = tool("amazon_kclpy", &["bin/sample_kclpy_app.py"])?;
    let python = client.with_file_name("python3");
    Some(format!("{} {script}", python.display()))
}

fn node(place: Place) -> Option<Place> {
    let client = tool("aws-kcl", &["node_modules/aws-kcl/package.json"])?;
    let modules = client.parent()?.parent()?.display().to_string();
    Some(place.with_variable("NODE_PATH", modules))
}

#[tokio::test(flavor = "multi_thread")]
async fn python_processors_read_all_records_in_order_after_kills() {
    let Some(command) = python(&script("noting.py")) else { return };
    read_all_records_in_order_after_kills(Place::of_shards(4, command).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_processors_read_all_records_in_order_after_kills() {
    let Some(node_js) = tool("node", &[]) else { return };
    let command = format!("{} {}", node_js.display(), script("noting.js"));
    let Some(place) = node(Place::of_shards(4, command).await) else { return };
    read_all_records_in_order_after_kills(place).await;
}

/// Children of the second generation answer each end with `shutdown`, and may request checkpoints later.
#[tokio::test(flavor = "multi_thread")]
async fn old_processors_read_all_records_in_order_after_kills() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(4, command).await.with_variable("OLD", "1");

    let notes = read_all_records_in_order_after_kills(place).await;

    let at_ends = notes.of("requested").len() + notes.of("ended").len();
    assert!(notes.of("checkpoint").len() > at_ends, "only ends were checkpointed\n{notes}");
}

/// Children of the first generation exit at a message that they do not know.
#[tokio::test(flavor = "multi_thread")]
async fn first_generation_processors_get_shutdown_messages() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(2, command).await.with_variable("FIRST", "1");
    let producer = place.stream.produce();
    let daemon = place.start("one");
    let are_known = |notes: &Notes, readers| {
        let known: BTreeSet<_> = notes.of("checkpoint").iter().map(|note| note.child).collect();
        notes.readers().len() == readers
            && notes.readers().values().all(|child| known.contains(child))
    };
    let both = |notes: &Notes| are_known(notes, 2);
    place.until("both children have a checkpoint", &[&daemon], both).await;
    let shard = place.stream.open_shards().await.remove(0);
    place.stream.split(&shard).await;

    producer.has_put_more(100).await;
    let all = |notes: &Notes| notes.of("ended").len() == 1 && are_known(notes, 4);
    place.until("the split shard has ended, and both new shards are read", &[&daemon], all).await;
    let put = producer.end().await;
    let total: usize = put.values().sum();
    place.until("all records are read", &[&daemon], |notes| notes.distinct() >= total).await;
    daemon.stop().await;

    let notes = place.notes();
    notes.are_right(&put, &place.stream.shards().await);
    assert_eq!(notes.of("lost").len(), 3, "{notes}");
    assert!(notes.of("unknown").is_empty(), "{notes}");
}

async fn read_all_records_in_order_after_kills(place: Place) -> Notes {
    let producer = place.stream.produce();
    let one = place.start("one");
    let other = place.start("other");
    let all = [&one, &other];
    place.until("all shards have a child", &all, |notes| notes.readers().len() == 4).await;
    producer.has_put_more(100).await;
    place.until("100 records are read", &all, |notes| notes.distinct() >= 100).await;

    let shards = place.stream.open_shards().await;
    place.stream.split(&shards[0]).await;
    place.stream.merge(&shards[2], &shards[3]).await;
    producer.has_put_more(100).await;
    let notes =
        place.until("three shards have ended", &all, |notes| notes.of("ended").len() >= 3).await;

    // The last child of an ended shard may still run, but no child follows it.
    let ended: BTreeSet<_> = notes.of("ended").iter().map(|note| &*note.shard).collect();
    let mut readers = notes.readers().into_iter();
    let (shard, child) =
        readers.find(|(shard, child)| !ended.contains(&**shard) && is_there(*child)).unwrap();
    kill(child);
    let replaced = place.until("another child reads the shard", &all, |notes| {
        notes.readers().get(&shard).is_some_and(|reader| *reader != child)
    });
    replaced.await;
    producer.has_put_more(100).await;

    // After a kill of a daemon, its children exit and the other daemon takes over.
    let log = other.log();
    let is_other = |child: &i32| log.contains(&format!("pid={child}"));
    let orphans: Vec<_> = place.notes().children().into_iter().filter(is_other).collect();
    let dead = other;
    dead.signal(Signal::KILL);
    let gone = || !orphans.iter().any(|child| is_there(*child));
    dead.until("the killed daemon's children exit", gone).await;
    producer.has_put_more(100).await;
    let put = producer.end().await;
    let total: usize = put.values().sum();
    place.until("all records are read", &[&one, &dead], |notes| notes.distinct() >= total).await;
    let log = one.stop().await + &dead.log();

    for fault in ["answered for", "did not checkpoint the end", "checkpoint of child not written"] {
        assert!(!log.contains(fault), "{fault:?} is in\n{log}");
    }
    let notes = place.notes();
    notes.are_right(&put, &place.stream.shards().await);
    assert!(!notes.of("requested").is_empty(), "no child received shutdownRequested\n{notes}");
    notes
}

/// The sample checkpoints its first batch, later once in 30 s, and the rest at `shutdownRequested`.
#[tokio::test(flavor = "multi_thread")]
async fn unchanged_python_sample_checkpoints_all_its_records() {
    let sample = tool("amazon_kclpy", &["bin/sample_kclpy_app.py"]);
    let (Some(sample), Some(raw)) = (sample, raw()) else { return };
    let mut place = Place::of_shards(2, sample.display().to_string()).await;
    let producer = place.stream.produce();
    let daemon = place.start("one");
    // The sample prints no line feeds. The output for 20 records still fits into one line of the
    // log.
    producer.has_put_more(20).await;
    let total: usize = producer.end().await.values().sum();
    let shards = place.stream.open_shards().await;
    place.stream.split(&shards[0]).await;

    let read = || daemon.log().matches("Data Size").count() >= total;
    daemon.until("the sample has read all records", read).await;
    daemon.until_logged("shard read to its end").await;
    let log = daemon.stop().await;
    assert!(log.contains("Shard has ended checkpointing"), "{log}");
    assert!(log.contains("Shutdown has been requested"), "{log}");

    place.run_by(raw);
    let daemon = place.start("one");
    let producer = place.stream.produce();
    producer.has_put_more(20).await;
    let more: usize = producer.end().await.values().sum();
    place.until("all later records are read", &[&daemon], |notes| notes.distinct() >= more).await;
    daemon.stop().await;
    assert_eq!(place.notes().distinct(), more, "{}", place.notes());
}
