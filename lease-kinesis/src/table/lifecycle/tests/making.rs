//! Tests of row creation, and of the positions at which shards start.

use super::*;

#[test]
fn start_at_latest_creates_rows_of_open_shards() {
    let mut stream = Stream::of(2);
    stream.split(0);

    let missing = stream.missing(&Rows::new(), LATEST);

    let latest = || Position::Latest;
    assert_eq!(missing, [(1, latest()), (2, latest()), (3, latest())]);
}

#[test]
fn start_at_trim_horizon_creates_rows_of_oldest_shards() {
    let mut stream = Stream::of(2);
    let [lower, _] = stream.split(0);
    stream.split(lower);

    let missing = stream.missing(&Rows::new(), TRIM_HORIZON);

    assert_eq!(missing, [(0, Position::TrimHorizon), (1, Position::TrimHorizon)]);
}

#[test]
fn start_at_timestamp_creates_rows_of_oldest_shards() {
    let mut stream = Stream::of(2);
    stream.split(0);

    let missing = stream.missing(&Rows::new(), InitialPosition::AtTimestamp(5));

    assert_eq!(missing, [(0, Position::AtTimestamp(5)), (1, Position::AtTimestamp(5))]);
}

#[test]
fn start_skips_dropped_shards() {
    let mut stream = Stream::of(1);
    let [lower, _] = stream.split(0);
    stream.split(lower);
    stream.drop(0);

    let missing = stream.missing(&Rows::new(), TRIM_HORIZON);

    assert_eq!(missing, [(1, Position::TrimHorizon), (2, Position::TrimHorizon)]);
}

#[test]
fn children_start_at_beginning_for_any_initial_position() {
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
fn merged_shard_starts_at_beginning() {
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
fn merged_shard_waits_for_rows_of_both_parents() {
    // Shard 0 is split into 2 and 3. Then 3 and 1 are merged.
    let mut stream = Stream::of(2);
    let [_, upper] = stream.split(0);
    let merged = stream.merge([upper, 1]);
    let rows = stream.rows([(0, record()), (1, Position::ShardEnd)]);

    let missing: Vec<_> =
        stream.missing(&rows, LATEST).into_iter().map(|(shard, _)| shard).collect();
    assert_eq!(missing, [2, upper]);
    let merged = &stream.all[merged];
    assert!(!may_be_created(merged, &BTreeSet::from([&id(1)])));
    assert!(may_be_created(merged, &BTreeSet::from([&id(1), &id(upper)])));
}

#[test]
fn merged_shard_with_one_named_parent_is_detected() {
    let mut stream = Stream::of(2);
    let (one, other) = (stream.all[0].hash_keys, stream.all[1].hash_keys);
    let merged = stream.merge([0, 1]);
    let half = stream.split(merged)[0];

    let mut merged = stream.all[merged].clone();
    assert!(names_all_parents(&merged, one) && names_all_parents(&merged, other));
    merged.parents.pop();
    assert!(!names_all_parents(&merged, one) && !names_all_parents(&merged, other));
    assert!(names_all_parents(&stream.all[half], merged.hash_keys));
}

#[test]
fn all_children_are_listed_once_hash_keys_are_covered() {
    let mut stream = Stream::of(2);
    let (before, hash_keys) = (stream.listed(), stream.all[0].hash_keys);
    let [lower, upper] = stream.split(0);
    let listed = |shards: &[usize]| -> Vec<_> {
        shards.iter().map(|shard| stream.all[*shard].clone()).collect()
    };
    let is_succeeded = |listed: &[Shard]| is_succeeded(&id(0), hash_keys, listed);

    assert!(!is_succeeded(&[]));
    assert!(!is_succeeded(&before), "the shard is still open in this list");
    assert!(!is_succeeded(&listed(&[0, 1])));
    assert!(!is_succeeded(&listed(&[0, 1, lower])));
    assert!(is_succeeded(&listed(&[0, 1, lower, upper])));
    assert!(is_succeeded(&listed(&[lower, upper])), "Kinesis reports only the children");
}

#[test]
fn open_shards_count_instead_of_dropped_children() {
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
fn descendants_are_found_by_hash_keys_across_dropped_shards() {
    // All workers were stopped while the stream dropped shard 0 and one of its children.
    let mut stream = Stream::of(2);
    let [lower, upper] = stream.split(0);
    let [lowest, _] = stream.split(lower);
    stream.split(lowest);
    let rows = stream.rows([(0, record()), (1, record())]);
    for shard in [0, lower] {
        stream.drop(shard);
    }

    let missing = stream.missing(&rows, LATEST);

    // A start at the latest record would skip records.
    let expected = [upper, lowest, 5].map(|shard| (shard, Position::TrimHorizon));
    assert_eq!(missing, expected);
}

#[test]
fn shard_with_row_is_not_missing() {
    let mut stream = Stream::of(1);
    stream.split(0);
    let rows = stream.rows([(1, Position::TrimHorizon), (2, Position::Latest)]);

    for initial in [LATEST, TRIM_HORIZON] {
        assert_eq!(stream.missing(&rows, initial), []);
    }
}

#[test]
fn rows_are_created_in_order_of_shards() {
    let mut stream = Stream::of(3);
    stream.all.reverse();

    let missing = stream.missing(&Rows::new(), TRIM_HORIZON);

    let order: Vec<_> = missing.into_iter().map(|(shard, _)| shard).collect();
    assert_eq!(order, [0, 1, 2]);
}

#[test]
fn year_of_daily_splits_and_merges_is_fast() {
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
