use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::position::{RecordNumber, SequenceNumber};

/// A stream as it is, and all that it was.
#[derive(Debug, Default, Clone)]
struct Stream {
    /// In the order in which they were made.
    all: Vec<Shard>,
    dropped: BTreeSet<ShardId>,
}

impl Stream {
    /// With this many open shards.
    fn of(count: u128) -> Self {
        let mut stream = Self::default();
        let width = u128::MAX / count;
        for number in 0..count {
            let last = if number + 1 == count { u128::MAX } else { (number + 1) * width - 1 };
            stream.add(&[], HashKeyRange::new(number * width, last).unwrap());
        }
        stream
    }

    fn add(&mut self, parents: &[usize], hash_keys: HashKeyRange) -> usize {
        let number = sequence(self.all.len());
        for parent in parents {
            self.all[*parent].ends = Some(number.clone());
        }
        let parents = parents.iter().map(|parent| id(*parent)).collect();
        let (id, begins) = (id(self.all.len()), number);
        self.all.push(Shard { id, parents, hash_keys, begins, ends: None });
        self.all.len() - 1
    }

    fn split(&mut self, shard: usize) -> [usize; 2] {
        let (first, last) = (self.all[shard].hash_keys.first(), self.all[shard].hash_keys.last());
        let middle = first + (last - first) / 2;
        [(first, middle), (middle + 1, last)]
            .map(|(first, last)| self.add(&[shard], HashKeyRange::new(first, last).unwrap()))
    }

    fn merge(&mut self, [lower, upper]: [usize; 2]) -> usize {
        let first = self.all[lower].hash_keys.first();
        let last = self.all[upper].hash_keys.last();
        self.add(&[lower, upper], HashKeyRange::new(first, last).unwrap())
    }

    /// Its records are too old, and those of all before it.
    fn drop(&mut self, shard: usize) {
        self.dropped.insert(id(shard));
    }

    fn listed(&self) -> Vec<Shard> {
        let kept = self.all.iter().filter(|shard| !self.dropped.contains(&shard.id));
        kept.cloned().collect()
    }

    fn open(&self) -> Vec<usize> {
        let mut open: Vec<_> = (0..self.all.len()).filter(|at| self.all[*at].is_open()).collect();
        open.sort_by_key(|at| self.all[*at].hash_keys);
        open
    }

    fn row(&self, shard: usize, checkpoint: Position) -> (ShardId, Known) {
        let Shard { id, parents, hash_keys, .. } = self.all[shard].clone();
        (id, Known { checkpoint, parents: parents.into_iter().collect(), hash_keys })
    }

    fn rows<const N: usize>(&self, rows: [(usize, Position); N]) -> Rows {
        rows.into_iter().map(|(shard, checkpoint)| self.row(shard, checkpoint)).collect()
    }

    /// What is missing, by its number.
    fn missing(&self, rows: &Rows, initial: InitialPosition) -> Vec<(usize, Position)> {
        let missing = missing(&self.listed(), rows, initial);
        missing.into_iter().map(|(shard, position)| (number(&shard.id), position)).collect()
    }

    fn unneeded(&self, rows: &Rows) -> Vec<usize> {
        unneeded(&self.listed(), rows).iter().map(number).collect()
    }
}

fn id(number: usize) -> ShardId {
    format!("shardId-{number:012}").parse().unwrap()
}

fn number(id: &ShardId) -> usize {
    id.as_str().trim_start_matches("shardId-").parse().unwrap()
}

fn sequence(number: usize) -> SequenceNumber {
    number.to_string().parse().unwrap()
}

fn record() -> Position {
    Position::Record(RecordNumber::new(sequence(7)))
}

const NOTHING: [usize; 0] = [];

const NOW: u64 = 1_700_000_000_000;

const LATEST: InitialPosition = InitialPosition::Latest;
const TRIM_HORIZON: InitialPosition = InitialPosition::TrimHorizon;

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
    assert_eq!(unneeded(Position::ShardEnd, record()), [0]);
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
fn what_the_stream_never_had_goes() {
    let stream = Stream::of(1);
    let mut rows = stream.rows([(0, record())]);
    let (_, stranger) = stream.row(0, record());
    rows.insert(id(9), stranger);

    assert_eq!(stream.unneeded(&rows), [9]);
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

/// What happens to a stream, or to what is kept of it.
#[derive(Debug, Clone)]
enum Step {
    Split(Index),
    /// An open shard and the next.
    Merge(Index),
    /// A shard whose parents are dropped is.
    Drop(Index),
    /// All that is closed is dropped, as after a long time.
    DropAll,
    /// Rows are made, up to so many; whoever makes them stops then.
    Make(usize),
    /// Rows are made and removed.
    Sync,
    /// Of a shard that may be read, a record is.
    Begin(Index),
    /// A shard that may be read is read to its end.
    End(Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = any::<Index>;
    let step = prop_oneof![
        2 => at().prop_map(Step::Split),
        2 => at().prop_map(Step::Merge),
        1 => at().prop_map(Step::Drop),
        1 => Just(Step::DropAll),
        1 => (0..4_usize).prop_map(Step::Make),
        3 => Just(Step::Sync),
        2 => at().prop_map(Step::Begin),
        4 => at().prop_map(Step::End),
    ];
    prop::collection::vec(step, 0..60)
}

fn initial() -> impl Strategy<Value = InitialPosition> {
    prop_oneof![Just(LATEST), Just(TRIM_HORIZON), Just(InitialPosition::AtTimestamp(5))]
}

/// A stream and its rows, and what must never be.
#[derive(Debug)]
struct Story {
    stream: Stream,
    rows: Rows,
    initial: InitialPosition,
    /// Those that had a row once.
    made: BTreeSet<ShardId>,
    /// Those that were read to their end.
    read: BTreeSet<ShardId>,
    /// Those that were dropped before they were read.
    lost: BTreeSet<ShardId>,
    /// Those that were over before anybody asked for records.
    before: BTreeSet<ShardId>,
    /// Those that were open when somebody first did.
    first: BTreeSet<ShardId>,
}

impl Story {
    fn begin(stream: Stream, initial: InitialPosition) -> Self {
        let mut story = Self::before_its_first_row(stream, initial);
        story.sync();
        story
    }

    /// Whoever begins with new records makes so many rows; whoever comes then knows when that was.
    fn begin_half_way(stream: Stream, made: usize) -> Self {
        let mut story = Self::before_its_first_row(stream, LATEST);
        story.make(made);
        story.initial = InitialPosition::AtTimestamp(NOW);
        story
    }

    fn before_its_first_row(stream: Stream, initial: InitialPosition) -> Self {
        let open = stream.all.iter().filter(|shard| shard.is_open());
        let first = open.map(|shard| shard.id.clone()).collect();
        let closed = stream.all.iter().filter(|shard| !shard.is_open());
        let before = closed.filter(|_| initial == LATEST).map(|shard| shard.id.clone()).collect();
        let (made, read, lost) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Self { stream, rows: Rows::new(), initial, made, read, lost, before, first }
    }

    fn go(&mut self, step: &Step) {
        match step {
            Step::Split(at) => {
                let open = self.stream.open();
                self.stream.split(*at.get(&open));
            }
            Step::Merge(at) => {
                let open = self.stream.open();
                let pairs: Vec<_> = open.windows(2).map(|pair| [pair[0], pair[1]]).collect();
                if !pairs.is_empty() {
                    self.stream.merge(*at.get(&pairs));
                }
            }
            Step::Drop(at) => {
                let oldest = self.oldest();
                if !oldest.is_empty() {
                    self.drop(at.get(&oldest));
                }
            }
            Step::DropAll => {
                let closed = self.stream.all.iter().filter(|shard| !shard.is_open());
                for shard in closed.map(|shard| shard.id.clone()).collect::<Vec<_>>() {
                    self.drop(&shard);
                }
            }
            Step::Make(most) => self.make(*most),
            Step::Sync => self.sync(),
            Step::Begin(at) => {
                if let Some(shard) = self.one_to_read(*at) {
                    self.rows.get_mut(&shard).unwrap().checkpoint = record();
                }
            }
            Step::End(at) => {
                if let Some(shard) = self.one_to_read(*at) {
                    self.end(&shard);
                }
            }
        }
    }

    fn make(&mut self, most: usize) {
        let missing = missing(&self.stream.listed(), &self.rows, self.initial);
        for (shard, position) in missing.into_iter().take(most) {
            self.make_one(&shard, position);
        }
    }

    fn make_one(&mut self, shard: &Shard, position: Position) {
        assert!(self.made.insert(shard.id.clone()), "{shard:?} is made again");
        if self.initial == LATEST {
            let is_first = self.first.contains(&shard.id);
            let expected = if is_first { Position::Latest } else { Position::TrimHorizon };
            assert_eq!(position, expected, "{shard:?}");
        }
        self.rows.extend([self.stream.row(number(&shard.id), position)]);
    }

    fn sync(&mut self) {
        let (listed, rows) = (self.stream.listed(), self.rows.clone());
        self.make(usize::MAX);
        for shard in unneeded(&listed, &rows) {
            self.rows.remove(&shard);
        }
    }

    /// Those that are there to be read, and may be.
    fn to_read(&self) -> Vec<ShardId> {
        let rows = self.rows.iter();
        let open_ends = rows.filter(|(_, row)| row.checkpoint != Position::ShardEnd);
        let readable = open_ends.filter(|(_, row)| may_be_read(row, &self.rows));
        let there = readable.filter(|(id, _)| !self.stream.dropped.contains(id));
        there.map(|(id, _)| id.clone()).collect()
    }

    fn one_to_read(&self, at: Index) -> Option<ShardId> {
        let to_read = self.to_read();
        let shard = (!to_read.is_empty()).then(|| at.get(&to_read).clone())?;
        for parent in &self.stream.all[number(&shard)].parents {
            let over = self.read.contains(parent)
                || self.lost.contains(parent)
                || self.before.contains(parent);
            assert!(over, "{shard} is read before {parent}");
        }
        Some(shard)
    }

    /// As a worker does that comes to the end of a shard.
    fn end(&mut self, shard: &ShardId) {
        if self.stream.all[number(shard)].is_open() {
            return;
        }
        let children = self.stream.all.iter().filter(|child| child.parents.contains(shard));
        for child in children.cloned().collect::<Vec<_>>() {
            let with_rows = self.rows.keys().collect();
            if !self.rows.contains_key(&child.id) && may_be_made(&child, &with_rows) {
                self.make_one(&child, of_descendant(self.initial));
            }
        }
        self.rows.get_mut(shard).unwrap().checkpoint = Position::ShardEnd;
        assert!(self.read.insert(shard.clone()), "{shard} is read again");
    }

    /// Those that would be dropped next.
    fn oldest(&self) -> Vec<ShardId> {
        let dropped = &self.stream.dropped;
        let oldest = self.stream.all.iter().filter(|shard| {
            !shard.is_open()
                && !dropped.contains(&shard.id)
                && shard.parents.iter().all(|parent| dropped.contains(parent))
        });
        oldest.map(|shard| shard.id.clone()).collect()
    }

    fn drop(&mut self, shard: &ShardId) {
        self.stream.drop(number(shard));
        if !self.read.contains(shard) {
            self.lost.insert(shard.clone());
        }
    }

    /// Until all is read and nothing changes any more.
    fn finish(&mut self) {
        loop {
            let before = (self.rows.clone(), self.read.len());
            self.sync();
            for shard in self.to_read() {
                self.rows.get_mut(&shard).unwrap().checkpoint = record();
                self.end(&shard);
            }
            if before == (self.rows.clone(), self.read.len()) {
                return;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_shard_is_read_once_after_its_parents_and_in_the_end_what_is_open_remains(
        count in 1..5_u128,
        earlier in prop::collection::vec(prop_oneof![
            any::<Index>().prop_map(Step::Split),
            any::<Index>().prop_map(Step::Merge),
        ], 0..6),
        initial in initial(),
        steps in steps(),
    ) {
        let mut past = Story::begin(Stream::of(count), initial);
        for step in &earlier {
            past.go(step);
        }
        let mut story = Story::begin(past.stream, initial);

        for step in &steps {
            story.go(step);
        }
        story.finish();

        for shard in story.stream.all.iter().filter(|shard| !shard.is_open()) {
            let fates = [&story.read, &story.lost, &story.before];
            let count = fates.iter().filter(|fate| fate.contains(&shard.id)).count();
            prop_assert!(count >= 1, "{:?} was passed over", shard);
        }
        let open: BTreeSet<_> = story.stream.open().into_iter().map(id).collect();
        let rows: BTreeSet<_> = story.rows.keys().cloned().collect();
        prop_assert_eq!(rows, open);
    }

    #[test]
    fn after_a_start_that_died_half_way_no_shard_that_was_open_is_passed_over(
        count in 1..5_u128,
        earlier in prop::collection::vec(any::<Index>().prop_map(Step::Split), 0..3),
        made in 0..8_usize,
        steps in steps(),
    ) {
        let mut past = Story::before_its_first_row(Stream::of(count), LATEST);
        for step in &earlier {
            past.go(step);
        }
        let mut story = Story::begin_half_way(past.stream, made);

        for step in &steps {
            story.go(step);
        }
        story.finish();

        for shard in &story.first {
            let is_read = story.read.contains(shard) || story.lost.contains(shard);
            prop_assert!(is_read || story.rows.contains_key(shard), "{} was passed over", shard);
        }
    }

    #[test]
    fn gaps_are_what_is_in_no_range(ends in prop::collection::vec(any::<[u128; 2]>(), 0..6), at: u128) {
        let ranges: Vec<_> = ends
            .into_iter()
            .map(|[one, other]| HashKeyRange::new(one.min(other), one.max(other)).unwrap())
            .collect();
        let edges = ranges.iter().flat_map(|range| {
            [range.first().wrapping_sub(1), range.first(), range.last(), range.last().wrapping_add(1)]
        });

        let gaps = gaps(ranges.clone());

        for key in edges.chain([0, at, u128::MAX]) {
            let covered = ranges.iter().any(|range| range.contains(key));
            prop_assert_eq!(gaps.iter().filter(|gap| gap.contains(key)).count(), usize::from(!covered));
        }
    }
}
