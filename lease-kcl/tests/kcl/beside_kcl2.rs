//! The shards of our workers beside KCL 2 workers: how many, and for how long no worker reads a shard.

use std::time::Duration;

use crate::fleet::{FAILOVER, Side, World};
use crate::model::{Setup, Take};

/// A worker of ours lists the rows every third of the failover time. Requests take time.
const LOOK: Duration = Duration::from_millis(2_000 / 3 + 200);

fn world(seed: u64, sides: &[Side], shards: u16) -> World {
    let mut world = World::new(seed, shards, Setup::default());
    world.cleanup_of_kcl = None;
    for side in sides {
        world.start(*side);
    }
    world.put(40);
    world.run_for(FAILOVER * 60);
    world
}

fn owned_by(world: &World, name: &str) -> Vec<String> {
    let owners = world.table.owners().into_iter();
    owners.filter(|(_, owner)| owner.as_deref() == Some(name)).map(|(key, _)| key).collect()
}

fn first_take(takes: &[Take], key: &str) -> Take {
    takes.iter().find(|take| take.key == key).unwrap_or_else(|| panic!("{key}: {takes:?}")).clone()
}

/// The workers list the rows at other times with each seed.
#[test]
fn shards_of_stopped_worker_are_read_at_the_next_look() {
    let mut longest = Duration::ZERO;
    for seed in 0..6 {
        let mut world = world(seed, &[Side::Kcl, Side::Kcl, Side::Ours, Side::Ours], 8);
        let (stays, stops) = (world.actors[2].name.clone(), world.actors[3].name.clone());
        let left_behind = owned_by(&world, &stops);
        assert_eq!(left_behind.len(), 2, "{:?}", world.shares());

        let stopped = world.simulation.now();
        world.actors[3].handle.as_ref().unwrap().stop();
        world.run_for(FAILOVER * 10);

        let takes = world.table.takes_since(stopped);
        let takes: Vec<_> = left_behind.iter().map(|key| first_take(&takes, key)).collect();
        longest = longest.max(takes.iter().filter_map(|take| take.unread).max().unwrap());
        let transferred: Vec<_> = takes.iter().filter(|take| take.owner == stays).collect();
        assert_eq!(transferred.len(), 2, "{seed}: also beyond a share of three: {takes:?}");
        assert!(transferred.iter().all(|take| take.unread.unwrap() < LOOK), "{seed}: {takes:?}");
        assert_eq!(world.shares()[&stays], 3, "{seed}: KCL steals the surplus");
        world.sound().unwrap();
    }
    println!("unread after a stop: at most {longest:?}");
}

/// No other worker of ours is left.
#[test]
fn last_worker_releases_its_shards_at_once() {
    let mut world = world(5, &[Side::Kcl, Side::Kcl, Side::Ours], 6);
    let stops = world.actors[2].name.clone();
    assert_eq!(owned_by(&world, &stops).len(), 2, "{:?}", world.shares());

    world.actors[2].handle.as_ref().unwrap().stop();
    world.run_for(LOOK);

    assert!(owned_by(&world, &stops).is_empty(), "{:?}", world.shares());
    world.sound().unwrap();
}

#[test]
fn assigned_shard_is_taken_at_the_next_look() {
    let mut world = world(7, &[Side::Kcl, Side::Ours], 8);
    let (kcl, ours) = (world.actors[0].name.clone(), world.actors[1].name.clone());
    for key in owned_by(&world, &kcl).into_iter().take(3) {
        let assigned = world.simulation.now();
        world.table.kcl_assigns(assigned, &key, &ours);
        world.run_for(FAILOVER);

        let takes = world.table.takes_since(assigned);
        let take = first_take(&takes, &key);
        assert_eq!(take.owner, ours);
        assert!(take.unread.unwrap() < LOOK, "{takes:?}");
    }
    world.sound().unwrap();
}

/// The first such shard shows that the KCL worker takes none.
#[test]
fn kcl_worker_at_its_limit_is_not_waited_for_twice() {
    let mut world = World::new(7, 9, Setup::default());
    world.most_of_kcl = 1;
    world.start(Side::Kcl);
    world.most_of_kcl = usize::MAX;
    world.start(Side::Ours);
    world.put(40);
    let mut unread = Vec::new();
    for _ in 0..2 {
        world.start(Side::Kcl);
        world.run_for(FAILOVER * 60);
        let died = world.actors.pop().unwrap();
        let left_behind = owned_by(&world, &died.name);
        assert!(left_behind.len() >= 3, "{:?}", world.shares());
        let at = world.simulation.now();
        world.actors.push(died);
        world.kill(2);
        world.run_for(FAILOVER * 6);

        let takes = world.table.takes_since(at);
        let taken = left_behind.iter().map(|key| first_take(&takes, key).at.saturating_sub(at));
        unread.push(taken.max().unwrap());
    }

    println!("unread after a crash: {unread:?}");
    // Our workers leave the shards to KCL for a third of a failover time more.
    assert!(unread[0] < FAILOVER * 4 + LOOK * 3, "{unread:?}");
    assert!(unread[1] < FAILOVER + LOOK * 2, "{unread:?}");
    world.sound().unwrap();
}

#[test]
fn children_of_split_shards_are_shared_with_kcl() {
    let mut world = world(7, &[Side::Kcl, Side::Ours], 4);
    let [kcl, ours] = [0, 1].map(|number| world.actors[number].name.clone());
    assert_eq!(world.shares().into_values().collect::<Vec<_>>(), [2, 2]);
    let split = world.simulation.now();
    world.split_all();
    let mut most = 0;
    for _ in 0..100 {
        world.run_for(FAILOVER / 4);
        world.put(4);
        most = most.max(world.shares().get(&ours).copied().unwrap_or(0));
        let unowned = world.table.ended().into_iter().find(|(_, owner)| owner.is_none());
        assert_eq!(unowned, None, "KCL would take it");
    }

    assert!(most <= 4, "{most} of 8");
    assert_eq!((world.shares()[&kcl], world.shares()[&ours]), (4, 4));
    let takes = world.table.takes_since(split);
    // KCL takes all shards without an owner, also beyond its share.
    assert!(takes.len() <= 9, "at most one of 8 children is stolen: {takes:?}");
    world.sound().unwrap();
}

#[test]
fn due_rows_are_deleted_although_kcl_renews_them() {
    let mut world = world(7, &[Side::Kcl, Side::Ours], 4);
    world.split_all();
    // Two comparisons of rows and shards, one per minute.
    for _ in 0..40 {
        world.put(4);
        world.run_for(Duration::from_secs(5));
    }

    assert_eq!(world.table.ended().len(), 0, "{:?}", world.table.ended());
    world.sound().unwrap();
}
