//! What the systems that came before promised: by the numbers of their tests (S1: kcl-rb, S4: a Go
//! group of consumers), where no other test here has a story of its own for it.

use std::time::Duration;

use async_trait::async_trait;
use lease_core::Lessee;
use lease_kinesis::{
    Batch, Checkpointer, Checkpoints, Outcome, ProcessorError, RecordProcessor, ShardContext,
};

use crate::log::{Event, Noting, What};
use crate::world::{TTL, World};

fn records(world: &World) -> usize {
    world.log.count(Event::is_record)
}

/// S1-7 to S1-10: all shards are found and begun; S1-11: without records, no processor is called.
#[test]
fn every_shard_is_begun_and_nobody_is_called_without_records() {
    let mut world = World::new(1, 5);
    world.start("a");

    world.until_shared(&[("a", 5)]);
    world.run_for(TTL);

    assert_eq!(world.log.count(|event| event.what == What::Begun), 5);
    assert_eq!(records(&world), 0);
    assert_eq!(world.log.count(|event| event.what == What::Checkpointed), 0);
}

/// S1-12, S4-6.
#[test]
fn a_record_is_given_to_the_processor_of_its_shard() {
    let mut world = World::new(2, 5);
    world.start("a");
    world.put(1);

    world.until_all_is_read();

    let put = world.stream.everything_put();
    let event = world.log.events().into_iter().find(Event::is_record).unwrap();
    assert_eq!(event.shard, put[0].shard);
}

/// S4-19, S4-21: even, odd, capped.
#[test]
fn ten_shards_are_five_each_and_a_cap_is_kept() {
    let mut world = World::new(3, 10);
    world.start("a");
    world.start("b");
    world.until_shared(&[("a", 5), ("b", 5)]);

    let log = world.log.of("c");
    let factory = move |shard: &_| Noting::new(log.clone(), shard);
    world.start_with("c", factory, |worker| worker.with_max_shards(2));

    world.until_shared(&[("a", 4), ("b", 4), ("c", 2)]);
}

/// S4-8: who gives a shard away has stopped working on it.
#[test]
fn a_processor_whose_shard_is_handed_over_is_given_nothing_more() {
    let mut world = World::new(10, 8);
    world.start("a");
    world.until_shared(&[("a", 8)]);
    world.put(200);
    world.start("b");
    for _ in 0..20 {
        world.put(50);
        world.run_for(Duration::from_millis(500));
    }
    world.until_shared(&[("a", 4), ("b", 4)]);
    world.until_all_is_read();

    let events = world.log.events();
    let told = |event: &Event| event.what == What::ShutdownRequested;
    assert_eq!(events.iter().filter(|event| told(event)).count(), 4);
    for (place, shut_down) in events.iter().enumerate().filter(|(_, event)| told(event)) {
        let after = &events[place..];
        let is_given = |event: &Event| {
            let same = event.shard == shut_down.shard && event.token == shut_down.token;
            same && event.is_record()
        };
        assert!(!after.iter().any(is_given), "given records after its last words\n{}", world.log);
    }
}

/// S4-9, S4-12, S4-13: what is over stays over, also for who comes later.
#[test]
fn a_shard_that_is_over_is_not_begun_again_by_a_worker_that_starts_anew() {
    let mut world = World::new(4, 2);
    world.start("a");
    world.put(50);
    let shard = world.open_shards()[0].clone();
    let middle = shard.hash_keys.first() + (shard.hash_keys.last() - shard.hash_keys.first()) / 2;
    world.simulation.on_network(|| world.stream.split(&shard.id, middle)).unwrap();
    world.until("the shard is over", TTL * 3, |world| {
        world.log.count(|event| event.what == What::ShardEnded) == 1
    });
    world.until_shared(&[("a", 3)]);
    assert_eq!(world.stop("a"), Ok(()));

    world.start("b");
    world.until_shared(&[("b", 3)]);
    world.put(50);
    world.until_all_is_read();

    let again = |event: &Event| &*event.worker == "b" && event.shard == shard.id;
    assert_eq!(world.log.count(again), 0);
    assert_eq!(world.log.replayed(), 0);
}

/// S4-14, S4-15: a slot's name brings its shards back, each once.
#[test]
fn a_worker_that_is_killed_and_started_again_under_its_name_reads_what_it_had() {
    let mut world = World::new(5, 4);
    world.start("slot-0");
    world.start("slot-1");
    world.until_shared(&[("slot-0", 2), ("slot-1", 2)]);
    world.run_for(Duration::from_secs(1));
    let of_slot = |world: &World| {
        let status = world.workers["slot-1"].handle.status();
        status.shards.into_iter().map(|shard| shard.shard).collect::<Vec<_>>()
    };
    let had = of_slot(&world);
    world.kill("slot-1");

    world.start("slot-1");
    world.until_shared(&[("slot-0", 2), ("slot-1", 2)]);

    assert_eq!(of_slot(&world), had);
    world.put(100);
    world.until_all_is_read();
    assert_eq!(world.log.overlaps(), [""; 0]);
}

/// Works on records, and leaves checkpoints to the worker.
struct Plain(Noting);

#[async_trait]
impl RecordProcessor for Plain {
    async fn process_records(&mut self, batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        self.0.note_records(batch);
        Outcome::Continue
    }

    async fn shutdown_requested(&mut self, _: &Checkpointer) -> Result<(), ProcessorError> {
        self.0.note(What::ShutdownRequested);
        Ok(())
    }
}

/// S4-16: what the worker owes is checkpointed before the shard is given away.
#[test]
fn a_worker_that_makes_the_checkpoints_makes_the_last_one_before_it_stops() {
    let mut world = World::new(6, 4);
    let log = world.log.of("a");
    let factory = move |shard: &_| Plain(Noting::new(log.clone(), shard));
    let rarely = Checkpoints::Every(Duration::from_hours(1));
    world.start_with("a", factory, |worker| worker.with_checkpoints(rarely));
    world.put(100);
    world.until("all is worked on", TTL * 3, |world| records(world) == 100);

    assert_eq!(world.stop("a"), Ok(()));
    world.start("b");
    world.until_shared(&[("b", 4)]);
    world.put(100);
    world.until_all_is_read();

    assert_eq!(world.log.replayed(), 0);
}

/// Works on records, and checkpoints none of them.
struct Forgetful(Noting);

#[async_trait]
impl RecordProcessor for Forgetful {
    async fn process_records(&mut self, batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        self.0.note_records(batch);
        Outcome::Continue
    }

    async fn shutdown_requested(&mut self, _: &Checkpointer) -> Result<(), ProcessorError> {
        Ok(())
    }
}

/// S4-26, S4-27: what was not checkpointed is delivered again, to whoever comes next.
#[test]
fn what_was_not_checkpointed_is_delivered_again() {
    let mut world = World::new(7, 2);
    let log = world.log.of("a");
    let factory = move |shard: &_| Forgetful(Noting::new(log.clone(), shard));
    world.start_with("a", factory, |worker| worker);
    world.put(80);
    world.until("all is worked on", TTL * 3, |world| records(world) == 80);
    assert_eq!(world.stop("a"), Ok(()));

    world.start("b");
    world.until("all is delivered again", TTL * 3, |world| records(world) == 160);

    world.until_all_is_read();
}

/// S4-25: who was to be given a shard dies meanwhile.
#[test]
fn a_shard_on_its_way_to_a_worker_that_dies_is_read_by_another() {
    for late in 0..12 {
        let mut world = World::new(late, 6);
        world.start("a");
        world.start("b");
        world.until_shared(&[("a", 3), ("b", 3)]);
        world.start("c");
        world.until("c is given shards", TTL * 3, |world| {
            world.log.count(|event| event.what == What::ShutdownRequested) > 0
        });
        world.run_for(Duration::from_millis(late * 7));
        world.kill("c");
        world.put(100);

        world.until_shared(&[("a", 3), ("b", 3)]);

        world.until_all_is_read();
        assert_eq!(world.log.replayed(), 0);
    }
}

/// S4-25: who gives a shard away dies meanwhile.
#[test]
fn a_shard_of_a_worker_that_dies_while_it_gives_it_away_is_read_by_another() {
    for late in 0..12 {
        let mut world = World::new(late, 6);
        world.start("a");
        world.until_shared(&[("a", 6)]);
        world.start("b");
        world.until("a gives shards away", TTL * 3, |world| {
            world.log.count(|event| event.what == What::ShutdownRequested) > 0
        });
        world.run_for(Duration::from_millis(late * 7));
        world.kill("a");
        world.put(100);

        world.until_shared(&[("b", 6)]);

        world.until_all_is_read();
    }
}

/// S4-22: leases without an owner are obtained at once, or together with those that have to expire: of
/// those without an owner, a dead worker's share waits until it does not count any more.
#[test]
fn expired_shards_are_not_obtained_before_unowned_ones() {
    let mut world = World::new(11, 4);
    world.start("a");
    world.start("b");
    world.until_shared(&[("a", 2), ("b", 2)]);
    world.run_for(TTL);
    let reads = |name: &str| {
        let status = world.workers[name].handle.status();
        status.shards.into_iter().map(|shard| shard.shard).collect::<Vec<_>>()
    };
    let (of_a, of_b) = (reads("a"), reads("b"));
    world.kill("b");
    let shard = world.open_shards().into_iter().find(|shard| shard.id == of_a[0]).unwrap();
    let middle = shard.hash_keys.first() + (shard.hash_keys.last() - shard.hash_keys.first()) / 2;
    world.simulation.on_network(|| world.stream.split(&shard.id, middle)).unwrap();

    let all_begun = |world: &World| world.log.count(|event| event.what == What::Begun) == 8;
    world.until("all shards are read", TTL * 6, all_begun);

    let begun = world.log.events().into_iter().filter(|event| event.what == What::Begun);
    let (expired, unowned): (Vec<_>, Vec<_>) =
        begun.skip(4).partition(|event| of_b.contains(&event.shard));
    assert_eq!((unowned.len(), expired.len()), (2, 2), "{}", world.log);
    let first_expired = expired.iter().map(|event| event.at).min().unwrap();
    assert!(unowned[0].at < first_expired, "{}", world.log);
    assert!(unowned.iter().all(|event| event.at <= first_expired), "{}", world.log);
}

/// S4-28: an operator ends a lease. Its processor is told that it was lost, not that the shard is
/// over; the shard is read again.
#[test]
fn a_lease_that_is_evicted_is_lost_and_its_shard_not_over() {
    let mut world = World::new(8, 2);
    world.start("a");
    world.until_shared(&[("a", 2)]);
    world.run_for(Duration::from_secs(1));
    let shard = world.workers["a"].handle.status().shards.remove(0);
    let key = format!("shop/shards/{}", shard.shard).parse().unwrap();

    assert!(world.evict(&key, shard.token));
    world.until("the processor is told", TTL * 2, |world| {
        world.log.count(|event| event.what == What::LeaseLost) == 1
    });

    world.until_shared(&[("a", 2)]);
    world.put(50);
    world.until_all_is_read();
    assert_eq!(world.log.count(|event| event.what == What::ShardEnded), 0);
}

/// S4-18; S1.f12: names are made where none is given, and differ.
#[test]
fn workers_have_names_of_their_own() {
    use lease_kinesis::{SimStream, Worker};
    use lease_memory::MemoryStore;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _inside = runtime.enter();
    let name = || {
        let factory = |_: &ShardContext| -> Plain { unreachable!("nothing is read") };
        let worker = Worker::builder("shop", MemoryStore::new(), SimStream::new(1), factory);
        worker.build().unwrap().name().clone()
    };

    let (one, other): (Lessee, Lessee) = (name(), name());

    assert_ne!(one, other);
    assert!(one.as_str().contains(&std::process::id().to_string()), "{one}");
}

/// A worker's own row, and how it ends: nothing is left of a worker that stopped.
#[test]
fn a_worker_that_stopped_leaves_no_row() {
    let mut world = World::new(9, 2);
    world.start("a");
    world.until_shared(&[("a", 2)]);
    let key = "shop/workers/a".parse().unwrap();
    assert!(world.holder(&key).is_some());

    assert_eq!(world.stop("a"), Ok(()));

    assert_eq!(world.rows_of_workers(), 0);
    assert!(world.holder(&key).is_none());
}
