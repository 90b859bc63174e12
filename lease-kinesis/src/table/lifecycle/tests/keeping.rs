//! Tests of shards that wait for their parents, and of obsolete rows.

use super::*;

#[test]
fn merged_shard_waits_for_both_parents() {
    let mut stream = Stream::of(2);
    let merged = stream.merge([0, 1]);
    let may_be_read = |one: Position, other: Position| {
        let rows = stream.rows([(0, one), (1, other), (merged, Position::TrimHorizon)]);
        may_be_read(&rows[&id(merged)], &rows)
    };

    assert!(!may_be_read(record(), record()));
    assert!(!may_be_read(Position::ShardEnd, record()));
    assert!(!may_be_read(Position::TrimHorizon, Position::ShardEnd));
    assert!(may_be_read(Position::ShardEnd, Position::ShardEnd));
}

#[test]
fn parent_without_row_does_not_delay_child() {
    let mut stream = Stream::of(2);
    let merged = stream.merge([0, 1]);
    let mut rows = stream.rows([(0, record()), (merged, Position::TrimHorizon)]);

    assert!(!may_be_read(&rows[&id(merged)], &rows), "the parent with a row delays the child");
    rows.remove(&id(0));
    assert!(may_be_read(&rows[&id(merged)], &rows));
}

#[test]
fn row_stays_until_all_children_have_checkpoints() {
    let mut stream = Stream::of(1);
    stream.split(0);
    let obsolete = |lower, upper| {
        stream.obsolete(&stream.rows([(0, Position::ShardEnd), (1, lower), (2, upper)]))
    };

    assert_eq!(obsolete(Position::TrimHorizon, Position::TrimHorizon), NOTHING);
    assert_eq!(obsolete(record(), Position::TrimHorizon), NOTHING);
    assert_eq!(obsolete(record(), Position::AtTimestamp(5)), NOTHING);
    assert_eq!(obsolete(record(), Position::Latest), NOTHING);
    assert_eq!(obsolete(record(), record()), [0]);
}

#[test]
fn row_is_obsolete_if_children_have_ended() {
    let mut stream = Stream::of(1);
    let [lower, _] = stream.split(0);
    stream.split(lower);

    let ended = (lower, Position::ShardEnd);
    let rows = stream.rows([(0, Position::ShardEnd), ended, (2, record())]);
    assert_eq!(stream.obsolete(&rows), [0]);
}

#[test]
fn row_stays_while_children_have_no_rows() {
    let mut stream = Stream::of(1);
    stream.split(0);

    assert_eq!(stream.obsolete(&stream.rows([(0, Position::ShardEnd), (1, record())])), NOTHING);
    assert_eq!(stream.obsolete(&stream.rows([(0, Position::ShardEnd)])), NOTHING);
}

#[test]
fn row_stays_until_shard_is_read_to_its_end() {
    let mut stream = Stream::of(1);
    stream.split(0);
    let rows = stream.rows([(0, record()), (1, record()), (2, record())]);

    assert_eq!(stream.obsolete(&rows), NOTHING);
}

#[test]
fn row_stays_while_parent_has_row() {
    // If the row were removed, the next sync would create the row again.
    let mut stream = Stream::of(1);
    let [lower, _] = stream.split(0);
    stream.split(lower);
    let mut rows = stream.rows([
        (0, Position::ShardEnd),
        (1, Position::ShardEnd),
        (2, Position::TrimHorizon),
        (3, record()),
        (4, record()),
    ]);

    assert_eq!(stream.obsolete(&rows), NOTHING);
    rows.extend([stream.row(2, record())]);
    assert_eq!(stream.obsolete(&rows), [0]);
    rows.remove(&id(0));
    assert_eq!(stream.obsolete(&rows), [1]);
    rows.remove(&id(1));
    assert_eq!(stream.missing(&rows, TRIM_HORIZON), []);
}

#[test]
fn merged_parents_are_obsolete_once_child_has_checkpoint() {
    let mut stream = Stream::of(2);
    stream.merge([0, 1]);
    let rows =
        |merged| stream.rows([(0, Position::ShardEnd), (1, Position::ShardEnd), (2, merged)]);

    assert_eq!(stream.obsolete(&rows(Position::TrimHorizon)), NOTHING);
    assert_eq!(stream.obsolete(&rows(record())), [0, 1]);
}

#[test]
fn dropped_shard_is_obsolete_once_children_have_rows() {
    let mut stream = Stream::of(1);
    stream.split(0);
    stream.drop(0);
    let mut rows = stream.rows([(0, record()), (1, Position::TrimHorizon)]);

    assert_eq!(
        stream.obsolete(&rows),
        NOTHING,
        "without row 0, shard 2 would start at the initial position"
    );
    rows.extend([stream.row(2, Position::TrimHorizon)]);
    assert_eq!(stream.obsolete(&rows), [0]);
}

#[test]
fn foreign_row_differs_from_dropped_shard() {
    let mut stream = Stream::of(1);
    let [lower, upper] = stream.split(0);
    stream.drop(0);
    let mut rows = stream.rows([(lower, record()), (upper, record())]);
    let (_, stranger) = stream.row(0, record());
    rows.insert(id(9), stranger.clone());

    assert_eq!(stream.why_obsolete(&rows), [(9, Obsolete::Foreign)]);
    rows.remove(&id(9));
    rows.insert(id(0), stranger);
    assert_eq!(stream.why_obsolete(&rows), [(0, Obsolete::Succeeded)]);
    for open in [lower, upper] {
        // Some tables and some lists of shards do not name the parents.
        stream.all[open].parents.clear();
        rows.extend([stream.row(open, record())]);
    }
    assert_eq!(stream.why_obsolete(&rows), [(0, Obsolete::Stray)]);
    rows.get_mut(&id(0)).unwrap().checkpoint = Position::ShardEnd;
    assert_eq!(stream.why_obsolete(&rows), [(0, Obsolete::Succeeded)]);
}

#[test]
fn row_of_another_stream_is_foreign_even_with_children() {
    let mut other = Stream::of(2);
    let merged = other.merge([0, 1]);
    let rows =
        other.rows([(0, Position::ShardEnd), (1, record()), (merged, Position::TrimHorizon)]);
    let stream = Stream::of(1);

    assert_eq!(
        stream.why_obsolete(&rows),
        [(0, Obsolete::ReadElsewhere), (1, Obsolete::Foreign), (merged, Obsolete::Foreign)]
    );
    other.drop(0);
    other.drop(1);
    let why = [(0, Obsolete::Succeeded), (1, Obsolete::Succeeded)];
    assert_eq!(other.why_obsolete(&rows), why, "the merged shard names its parents");
}

#[test]
fn open_shard_read_to_its_end_was_read_elsewhere() {
    let stream = Stream::of(2);
    let rows = stream.rows([(0, Position::ShardEnd), (1, record())]);

    assert_eq!(stream.why_obsolete(&rows), [(0, Obsolete::ReadElsewhere)]);
}

#[test]
fn gaps_between_ranges_of_hash_keys_are_found() {
    let range = |first, last| HashKeyRange::new(first, last).unwrap();
    let max = u128::MAX;

    assert_eq!(gaps([]), [HashKeyRange::ALL]);
    assert_eq!(gaps([HashKeyRange::ALL]), []);
    assert_eq!(gaps([range(10, max)]), [range(0, 9)]);
    assert_eq!(gaps([range(0, 9)]), [range(10, max)]);
    assert_eq!(gaps([range(11, max), range(0, 9)]), [range(10, 10)]);
    assert_eq!(gaps([range(0, 9), range(10, max)]), []);
    assert_eq!(gaps([range(0, 9), range(20, 29), range(40, max)]), [range(10, 19), range(30, 39)]);
    // A list from several requests may show an open parent together with its children.
    assert_eq!(gaps([HashKeyRange::ALL, range(0, 9), range(20, max)]), []);
    assert_eq!(gaps([range(0, 99), range(10, 19), range(101, max)]), [range(100, 100)]);
    assert_eq!(gaps([range(max, max), range(0, 0)]), [range(1, max - 1)]);
}

#[test]
fn stream_has_no_gaps_after_splits_and_merges() {
    let mut stream = Stream::of(3);
    let [lower, upper] = stream.split(1);
    stream.merge([upper, 2]);
    stream.merge([0, lower]);

    let open = stream.open();
    assert_eq!(gaps(open.into_iter().map(|shard| stream.all[shard].hash_keys)), []);
}
