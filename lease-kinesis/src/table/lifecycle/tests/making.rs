//! Which rows are made, and from where on their shards are read.

use super::*;

#[test]
fn a_start_with_new_records_is_with_what_is_open_at_this_moment() {
    let mut stream = Stream::of(2);
    stream.split(0);

    let missing = stream.missing(&Rows::new(), LATEST);

    let latest = || Position::Latest;
    assert_eq!(missing, [(1, latest()), (2, latest()), (3, latest())]);
}

#[test]
fn a_start_with_the_oldest_records_is_with_the_oldest_shards() {
    let mut stream = Stream::of(2);
    let [lower, _] = stream.split(0);
    stream.split(lower);

    let missing = stream.missing(&Rows::new(), TRIM_HORIZON);

    assert_eq!(missing, [(0, Position::TrimHorizon), (1, Position::TrimHorizon)]);
}

#[test]
fn a_start_at_a_time_is_with_the_oldest_shards_at_that_time() {
    let mut stream = Stream::of(2);
    stream.split(0);

    let missing = stream.missing(&Rows::new(), InitialPosition::AtTimestamp(5));

    assert_eq!(missing, [(0, Position::AtTimestamp(5)), (1, Position::AtTimestamp(5))]);
}

#[test]
fn a_start_where_the_oldest_shards_are_dropped_is_with_the_oldest_that_are_not() {
    let mut stream = Stream::of(1);
    let [lower, _] = stream.split(0);
    stream.split(lower);
    stream.drop(0);

    let missing = stream.missing(&Rows::new(), TRIM_HORIZON);

    assert_eq!(missing, [(1, Position::TrimHorizon), (2, Position::TrimHorizon)]);
}

#[test]
fn what_became_of_a_shard_is_read_from_its_beginning_whatever_the_start() {
    let mut stream = Stream::of(1);
    stream.split(0);
    let rows = stream.rows([(0, record())]);

    for initial in [LATEST, TRIM_HORIZON] {
        let missing = stream.missing(&rows, initial);
        assert_eq!(missing, [(1, Position::TrimHorizon), (2, Position::TrimHorizon)]);
    }
    let missing = stream.missing(&rows, InitialPosition::AtTimestamp(5));
    assert_eq!(missing, [(1, Position::AtTimestamp(5)), (2, Position::AtTimestamp(5))]);
}

#[test]
fn what_was_merged_is_read_from_its_beginning() {
    let mut stream = Stream::of(2);
    stream.merge([0, 1]);
    let rows = stream.rows([(0, record()), (1, Position::ShardEnd)]);

    assert_eq!(stream.missing(&rows, LATEST), [(2, Position::TrimHorizon)]);
}

#[test]
fn no_generation_is_skipped() {
    let mut stream = Stream::of(1);
    let [lower, upper] = stream.split(0);
    let [lowest, _] = stream.split(lower);
    stream.split(lowest);
    let mut rows = stream.rows([(0, record())]);

    let mut generations = Vec::new();
    loop {
        let missing = stream.missing(&rows, LATEST);
        if missing.is_empty() {
            break;
        }
        assert!(missing.iter().all(|(_, position)| *position == Position::TrimHorizon));
        rows.extend(missing.iter().map(|(shard, position)| stream.row(*shard, position.clone())));
        generations.push(missing.into_iter().map(|(shard, _)| shard).collect::<Vec<_>>());
    }

    assert_eq!(generations, [vec![lower, upper], vec![3, 4], vec![5, 6]]);
}

#[test]
fn what_was_merged_waits_for_the_row_of_the_parent_that_is_behind() {
    // 0 is split into 2 and 3; then 3 and 1 are merged.
    let mut stream = Stream::of(2);
    let [_, upper] = stream.split(0);
    let merged = stream.merge([upper, 1]);
    let rows = stream.rows([(0, record()), (1, Position::ShardEnd)]);

    let missing: Vec<_> =
        stream.missing(&rows, LATEST).into_iter().map(|(shard, _)| shard).collect();
    assert_eq!(missing, [2, upper]);
    let merged = &stream.all[merged];
    assert!(!may_be_made(merged, &BTreeSet::from([&id(1)])));
    assert!(may_be_made(merged, &BTreeSet::from([&id(1), &id(upper)])));
}

#[test]
fn a_merged_shard_that_is_told_with_one_parent_had_another() {
    let mut stream = Stream::of(2);
    let (one, other) = (stream.all[0].hash_keys, stream.all[1].hash_keys);
    let merged = stream.merge([0, 1]);
    let half = stream.split(merged)[0];

    let mut merged = stream.all[merged].clone();
    assert!(names_its_parents(&merged, one) && names_its_parents(&merged, other));
    merged.parents.pop();
    assert!(!names_its_parents(&merged, one) && !names_its_parents(&merged, other));
    assert!(names_its_parents(&stream.all[half], merged.hash_keys));
}

#[test]
fn a_closed_shard_is_succeeded_once_all_its_hash_keys_are_listed_again() {
    let mut stream = Stream::of(2);
    let (before, hash_keys) = (stream.listed(), stream.all[0].hash_keys);
    let [lower, upper] = stream.split(0);
    let listed = |shards: &[usize]| -> Vec<_> {
        shards.iter().map(|shard| stream.all[*shard].clone()).collect()
    };
    let is_succeeded = |listed: &[Shard]| is_succeeded(&id(0), hash_keys, listed);

    assert!(!is_succeeded(&[]));
    assert!(!is_succeeded(&before), "of a moment at which it was open");
    assert!(!is_succeeded(&listed(&[0, 1])));
    assert!(!is_succeeded(&listed(&[0, 1, lower])));
    assert!(is_succeeded(&listed(&[0, 1, lower, upper])));
    assert!(is_succeeded(&listed(&[lower, upper])), "as it is told at the end of a shard");
}

#[test]
fn a_closed_shard_is_succeeded_by_what_is_open_where_its_children_are_dropped() {
    let mut stream = Stream::of(2);
    let hash_keys = stream.all[0].hash_keys;
    let halves = stream.split(0);
    let merged = stream.merge(halves);
    for shard in halves {
        stream.drop(shard);
    }

    assert!(is_succeeded(&id(0), hash_keys, &stream.listed()));
    stream.drop(merged);
    assert!(!is_succeeded(&id(0), hash_keys, &stream.listed()));
}

#[test]
fn what_became_of_a_shard_is_known_by_its_hash_keys_where_the_generation_between_is_dropped() {
    // Everybody was away for so long that 0, which was being read, and its children are dropped.
    let mut stream = Stream::of(2);
    let [lower, upper] = stream.split(0);
    let [lowest, _] = stream.split(lower);
    stream.split(lowest);
    let rows = stream.rows([(0, record()), (1, record())]);
    for shard in [0, lower] {
        stream.drop(shard);
    }

    let missing = stream.missing(&rows, LATEST);

    // Not from now on: that would lose what arrived since.
    let expected = [upper, lowest, 5].map(|shard| (shard, Position::TrimHorizon));
    assert_eq!(missing, expected);
}

#[test]
fn what_has_a_row_needs_no_other() {
    let mut stream = Stream::of(1);
    stream.split(0);
    let rows = stream.rows([(1, Position::TrimHorizon), (2, Position::Latest)]);

    for initial in [LATEST, TRIM_HORIZON] {
        assert_eq!(stream.missing(&rows, initial), []);
    }
}

#[test]
fn rows_are_made_in_the_order_in_which_shards_were() {
    let mut stream = Stream::of(3);
    stream.all.reverse();

    let missing = stream.missing(&Rows::new(), TRIM_HORIZON);

    let order: Vec<_> = missing.into_iter().map(|(shard, _)| shard).collect();
    assert_eq!(order, [0, 1, 2]);
}

#[test]
fn a_year_of_daily_splits_and_merges_is_looked_through_at_once() {
    let mut stream = Stream::of(1);
    let mut open = 0;
    for _ in 0..365 {
        let halves = stream.split(open);
        open = stream.merge(halves);
    }

    assert_eq!(stream.missing(&Rows::new(), TRIM_HORIZON), [(0, Position::TrimHorizon)]);
    let rows = stream.rows([(0, record())]);
    let both = [(1, Position::TrimHorizon), (2, Position::TrimHorizon)];
    assert_eq!(stream.missing(&rows, LATEST), both);
}
