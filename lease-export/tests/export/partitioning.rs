//! Partition keys that an application gives to events.

use std::time::Duration;

use lease_export::{Event, Exporter, Limits, PartitionKey, Record, Response, Retries};
use serde_json::Value;

use crate::world::{World, event, everywhere, run};

everywhere! {
    events_of_a_key_share_a_record_in_order
    events_without_key_share_a_record
    sink_without_keys_gets_full_records
    halves_of_a_refused_record_keep_the_key
    repeated_record_has_the_same_key
}

/// The key is the remainder of the event's number by 3. Numbers from 100 have none.
fn remainder(event: &Event) -> Option<PartitionKey> {
    let line: Value = serde_json::from_str(event.line()).ok()?;
    let number = line.get("number")?.as_u64().filter(|number| *number < 100)?;
    PartitionKey::new(format!("remainder-{}", number % 3)).ok()
}

async fn by_remainder(world: &World) -> Exporter {
    world.enabled().await.with_partition_key(remainder)
}

/// The key and the ids of each record that the sink has taken.
fn records(world: &World) -> Vec<(String, Vec<String>)> {
    let taken = world.sink.taken();
    let record = |record: &Record| {
        (record.key().to_string(), record.ids().map(ToString::to_string).collect())
    };
    taken.iter().map(|(_, taken)| record(taken)).collect()
}

fn expected(records: &[(&str, &[u64])]) -> Vec<(String, Vec<String>)> {
    let ids = |numbers: &[u64]| numbers.iter().map(|number| format!("event-{number}")).collect();
    records.iter().map(|(key, numbers)| ((*key).to_owned(), ids(numbers))).collect()
}

async fn events_of_a_key_share_a_record_in_order(world: World) {
    let world = world.with_limits(Limits::KINESIS);
    let exporter = by_remainder(&world).await;
    world.append(8).await;

    assert_eq!(run(&exporter).await.sent, 8);

    assert_eq!(world.sink.requests(), [3]);
    let wanted: [(&str, &[u64]); 3] =
        [("remainder-1", &[1, 4, 7]), ("remainder-2", &[2, 5, 8]), ("remainder-0", &[3, 6])];
    assert_eq!(records(&world), expected(&wanted));
}

async fn events_without_key_share_a_record(world: World) {
    let world = world.with_limits(Limits::KINESIS);
    let exporter = by_remainder(&world).await;
    let events = [100, 1, 101, 4].map(event);
    let _kept = world.buffer().append(&events).await.unwrap();

    assert_eq!(run(&exporter).await.sent, 4);

    let wanted: [(&str, &[u64]); 2] = [("event-100", &[100, 101]), ("remainder-1", &[1, 4])];
    assert_eq!(records(&world), expected(&wanted));
}

async fn sink_without_keys_gets_full_records(world: World) {
    let world = world.with_limits(Limits::FIREHOSE);
    let exporter = by_remainder(&world).await;
    world.append(8).await;

    assert_eq!(run(&exporter).await.sent, 8);

    assert_eq!(world.sink.requests(), [1]);
}

async fn halves_of_a_refused_record_keep_the_key(world: World) {
    let world = world.with_limits(Limits::KINESIS);
    let exporter = by_remainder(&world).await;
    world.append(12).await;
    world.sink.refuse(["event-4".parse().unwrap()]);

    let exported = run(&exporter).await;

    assert_eq!((exported.sent, exported.refused), (11, 1));
    for (key, ids) in records(&world) {
        for id in ids {
            let number: u64 = id.strip_prefix("event-").unwrap().parse().unwrap();
            assert_eq!(key, format!("remainder-{}", number % 3), "{id}");
        }
    }
}

async fn repeated_record_has_the_same_key(world: World) {
    let world = world.with_limits(Limits::KINESIS);
    let once = Retries::new(1, Duration::from_millis(1), Duration::from_millis(1)).unwrap();
    let exporter = by_remainder(&world).await.with_retries(once);
    world.append(4).await;
    world.sink.respond([Response::LoseAnswer]);

    assert_eq!(run(&exporter).await.sent, 4);

    let records = records(&world);
    let (first, second) = records.split_at(3);
    assert_eq!(first, second);
}
