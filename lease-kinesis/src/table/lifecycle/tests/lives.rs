//! Property tests: random steps of a stream and of its workers.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Split(Index),
    /// Merges an open shard with the next open shard.
    Merge(Index),
    /// Drops a closed shard whose parents are dropped.
    Drop(Index),
    DropAll,
    /// Creates up to this number of missing rows, as an interrupted sync does.
    Make(usize),
    Sync,
    Begin(Index),
    /// Reads a readable shard to its end.
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

#[derive(Debug)]
struct Model {
    stream: Stream,
    rows: Rows,
    initial: InitialPosition,
    made: BTreeSet<ShardId>,
    read: BTreeSet<ShardId>,
    /// Shards that were dropped before they were read.
    lost: BTreeSet<ShardId>,
    /// Shards that were closed before the first start at `Latest`.
    before: BTreeSet<ShardId>,
    /// Shards that were open at the first start.
    first: BTreeSet<ShardId>,
}

impl Model {
    fn begin(stream: Stream, initial: InitialPosition) -> Self {
        let mut model = Self::without_rows(stream, initial);
        model.sync();
        model
    }

    /// A worker starts at `Latest`, creates `made` rows and stops. The next worker uses the stored time.
    fn interrupted(stream: Stream, made: usize) -> Self {
        let mut model = Self::without_rows(stream, LATEST);
        model.make(made);
        model.initial = InitialPosition::AtTimestamp(NOW);
        model
    }

    fn without_rows(stream: Stream, initial: InitialPosition) -> Self {
        let open = stream.all.iter().filter(|shard| shard.is_open());
        let first = open.map(|shard| shard.id.clone()).collect();
        let closed = stream.all.iter().filter(|shard| !shard.is_open());
        let before = closed.filter(|_| initial == LATEST).map(|shard| shard.id.clone()).collect();
        let (made, read, lost) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Self { stream, rows: Rows::new(), initial, made, read, lost, before, first }
    }

    fn apply(&mut self, step: &Step) {
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
        assert!(self.made.insert(shard.id.clone()), "a second row is created for {shard:?}");
        if self.initial == LATEST {
            let is_first = self.first.contains(&shard.id);
            let expected = if is_first { Position::Latest } else { Position::TrimHorizon };
            assert_eq!(position, expected, "{shard:?}");
        }
        self.rows.extend([self.stream.row(number(&shard.id), position)]);
    }

    fn sync(&mut self) {
        let listed = self.stream.listed();
        let missing = missing(&listed, &self.rows, self.initial);
        for (shard, why) in obsolete(&listed, &self.rows, &missing) {
            let is_of_another = matches!(why, Obsolete::Foreign | Obsolete::ReadElsewhere);
            assert!(!is_of_another, "{shard:?} belongs to this stream: {why:?}");
            self.rows.remove(&shard);
        }
        self.make(usize::MAX);
    }

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

    fn end(&mut self, shard: &ShardId) {
        if self.stream.all[number(shard)].is_open() {
            return;
        }
        let children = self.stream.all.iter().filter(|child| child.parents.contains(shard));
        for child in children.cloned().collect::<Vec<_>>() {
            let with_rows = self.rows.keys().collect();
            if !self.rows.contains_key(&child.id) && may_be_created(&child, &with_rows) {
                self.make_one(&child, of_descendant(self.initial));
            }
        }
        self.rows.get_mut(shard).unwrap().checkpoint = Position::ShardEnd;
        assert!(self.read.insert(shard.clone()), "{shard} is read twice");
    }

    /// The stream drops such a shard next.
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
    fn every_shard_is_read_once_after_its_parents(
        count in 1..5_u128,
        earlier in prop::collection::vec(prop_oneof![
            any::<Index>().prop_map(Step::Split),
            any::<Index>().prop_map(Step::Merge),
        ], 0..6),
        initial in initial(),
        steps in steps(),
    ) {
        let mut past = Model::begin(Stream::of(count), initial);
        for step in &earlier {
            past.apply(step);
        }
        let mut model = Model::begin(past.stream, initial);

        for step in &steps {
            model.apply(step);
        }
        model.finish();

        for shard in model.stream.all.iter().filter(|shard| !shard.is_open()) {
            let fates = [&model.read, &model.lost, &model.before];
            let count = fates.iter().filter(|fate| fate.contains(&shard.id)).count();
            prop_assert!(count >= 1, "{:?} was skipped", shard);
        }
        let open: BTreeSet<_> = model.stream.open().into_iter().map(id).collect();
        let rows: BTreeSet<_> = model.rows.keys().cloned().collect();
        prop_assert_eq!(rows, open);
    }

    #[test]
    fn interrupted_start_skips_no_open_shard(
        count in 1..5_u128,
        earlier in prop::collection::vec(any::<Index>().prop_map(Step::Split), 0..3),
        made in 0..8_usize,
        steps in steps(),
    ) {
        let mut past = Model::without_rows(Stream::of(count), LATEST);
        for step in &earlier {
            past.apply(step);
        }
        let mut model = Model::interrupted(past.stream, made);

        for step in &steps {
            model.apply(step);
        }
        model.finish();

        for shard in &model.first {
            let is_read = model.read.contains(shard) || model.lost.contains(shard);
            prop_assert!(is_read || model.rows.contains_key(shard), "{} was skipped", shard);
        }
    }

    #[test]
    fn gaps_are_the_uncovered_hash_keys(ends in prop::collection::vec(any::<[u128; 2]>(), 0..6), at: u128) {
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

const NOW: u64 = 1_700_000_000_000;
