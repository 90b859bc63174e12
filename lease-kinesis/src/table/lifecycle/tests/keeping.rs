//! Which shards wait, and which rows may go.

use super::*;

#[test]
fn a_shard_waits_until_both_of_its_parents_are_read() {
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
fn a_parent_without_a_row_is_not_waited_for() {
    let mut stream = Stream::of(2);
    let merged = stream.merge([0, 1]);
    let mut rows = stream.rows([(0, record()), (merged, Position::TrimHorizon)]);

    assert!(!may_be_read(&rows[&id(merged)], &rows), "the other is");
    rows.remove(&id(0));
    assert!(may_be_read(&rows[&id(merged)], &rows));
}

#[test]
fn a_row_stays_until_all_that_it_became_has_been_begun_with() {
    let mut stream = Stream::of(1);
    stream.split(0);
    let unneeded = |lower, upper| {
        stream.unneeded(&stream.rows([(0, Position::ShardEnd), (1, lower), (2, upper)]))
    };

    assert_eq!(unneeded(Position::TrimHorizon, Position::TrimHorizon), NOTHING);
    assert_eq!(unneeded(record(), Position::TrimHorizon), NOTHING);
    assert_eq!(unneeded(record(), Position::AtTimestamp(5)), NOTHING);
    assert_eq!(unneeded(record(), Position::Latest), NOTHING);
    assert_eq!(unneeded(record(), record()), [0]);
}

#[test]
fn a_row_may_go_also_where_what_it_became_has_ended() {
    let mut stream = Stream::of(1);
    let [lower, _] = stream.split(0);
    stream.split(lower);

    let ended = (lower, Position::ShardEnd);
    let rows = stream.rows([(0, Position::ShardEnd), ended, (2, record())]);
    assert_eq!(stream.unneeded(&rows), [0]);
}

#[test]
fn a_row_stays_while_what_it_became_has_none() {
    let mut stream = Stream::of(1);
    stream.split(0);

    assert_eq!(stream.unneeded(&stream.rows([(0, Position::ShardEnd), (1, record())])), NOTHING);
    assert_eq!(stream.unneeded(&stream.rows([(0, Position::ShardEnd)])), NOTHING);
}

#[test]
fn a_row_stays_until_it_is_read_to_its_end() {
    let mut stream = Stream::of(1);
    stream.split(0);
    let rows = stream.rows([(0, record()), (1, record()), (2, record())]);

    assert_eq!(stream.unneeded(&rows), NOTHING);
}

#[test]
fn a_row_stays_while_what_it_came_from_has_one() {
    // Otherwise it would be missing, once more.
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

    assert_eq!(stream.unneeded(&rows), NOTHING);
    rows.extend([stream.row(2, record())]);
    assert_eq!(stream.unneeded(&rows), [0]);
    rows.remove(&id(0));
    assert_eq!(stream.unneeded(&rows), [1]);
    rows.remove(&id(1));
    assert_eq!(stream.missing(&rows, TRIM_HORIZON), []);
}

#[test]
fn both_parents_of_what_was_merged_may_go_once_that_is_begun_with() {
    let mut stream = Stream::of(2);
    stream.merge([0, 1]);
    let rows =
        |merged| stream.rows([(0, Position::ShardEnd), (1, Position::ShardEnd), (2, merged)]);

    assert_eq!(stream.unneeded(&rows(Position::TrimHorizon)), NOTHING);
    assert_eq!(stream.unneeded(&rows(record())), [0, 1]);
}

#[test]
fn what_the_stream_has_dropped_goes_once_all_that_it_became_has_a_row() {
    let mut stream = Stream::of(1);
    stream.split(0);
    stream.drop(0);
    let mut rows = stream.rows([(0, record()), (1, Position::TrimHorizon)]);

    assert_eq!(
        stream.unneeded(&rows),
        NOTHING,
        "2 is missing, and would be taken for a first shard"
    );
    rows.extend([stream.row(2, Position::TrimHorizon)]);
    assert_eq!(stream.unneeded(&rows), [0]);
}

#[test]
fn what_the_stream_never_had_is_told_apart_from_what_it_may_have_dropped() {
    let mut stream = Stream::of(1);
    let [lower, upper] = stream.split(0);
    stream.drop(0);
    let mut rows = stream.rows([(lower, record()), (upper, record())]);
    let (_, stranger) = stream.row(0, record());
    rows.insert(id(9), stranger.clone());

    assert_eq!(stream.why_unneeded(&rows), [(9, Unneeded::Foreign)]);
    rows.remove(&id(9));
    rows.insert(id(0), stranger);
    assert_eq!(stream.why_unneeded(&rows), [(0, Unneeded::Succeeded)]);
    for open in [lower, upper] {
        // As in tables and lists that do not tell it.
        stream.all[open].parents.clear();
        rows.extend([stream.row(open, record())]);
    }
    assert_eq!(stream.why_unneeded(&rows), [(0, Unneeded::Stray)]);
    rows.get_mut(&id(0)).unwrap().checkpoint = Position::ShardEnd;
    assert_eq!(stream.why_unneeded(&rows), [(0, Unneeded::Succeeded)]);
}

#[test]
fn what_the_stream_does_not_know_may_be_of_another_although_all_that_it_became_has_a_row() {
    // Two shards that were merged, of which one is behind, beside a stream that has one shard.
    let mut other = Stream::of(2);
    let merged = other.merge([0, 1]);
    let rows =
        other.rows([(0, Position::ShardEnd), (1, record()), (merged, Position::TrimHorizon)]);
    let stream = Stream::of(1);

    assert_eq!(
        stream.why_unneeded(&rows),
        [(0, Unneeded::ReadElsewhere), (1, Unneeded::Foreign), (merged, Unneeded::Foreign)]
    );
    other.drop(0);
    other.drop(1);
    let why = [(0, Unneeded::Succeeded), (1, Unneeded::Succeeded)];
    assert_eq!(other.why_unneeded(&rows), why, "the merged shard says where it came from");
}

#[test]
fn what_was_read_to_its_end_and_is_open_was_read_elsewhere() {
    let stream = Stream::of(2);
    let rows = stream.rows([(0, Position::ShardEnd), (1, record())]);

    assert_eq!(stream.why_unneeded(&rows), [(0, Unneeded::ReadElsewhere)]);
}

#[test]
fn hash_keys_that_nobody_has_are_found() {
    let range = |first, last| HashKeyRange::new(first, last).unwrap();
    let max = u128::MAX;

    assert_eq!(gaps([]), [HashKeyRange::ALL]);
    assert_eq!(gaps([HashKeyRange::ALL]), []);
    assert_eq!(gaps([range(10, max)]), [range(0, 9)]);
    assert_eq!(gaps([range(0, 9)]), [range(10, max)]);
    assert_eq!(gaps([range(11, max), range(0, 9)]), [range(10, 10)]);
    assert_eq!(gaps([range(0, 9), range(10, max)]), []);
    assert_eq!(gaps([range(0, 9), range(20, 29), range(40, max)]), [range(10, 19), range(30, 39)]);
    // A parent and its children, as a list that is of several moments may have them.
    assert_eq!(gaps([HashKeyRange::ALL, range(0, 9), range(20, max)]), []);
    assert_eq!(gaps([range(0, 99), range(10, 19), range(101, max)]), [range(100, 100)]);
    assert_eq!(gaps([range(max, max), range(0, 0)]), [range(1, max - 1)]);
}

#[test]
fn a_stream_has_no_gaps_whatever_becomes_of_it() {
    let mut stream = Stream::of(3);
    let [lower, upper] = stream.split(1);
    stream.merge([upper, 2]);
    stream.merge([0, lower]);

    let open = stream.open();
    assert_eq!(gaps(open.into_iter().map(|shard| stream.all[shard].hash_keys)), []);
}
