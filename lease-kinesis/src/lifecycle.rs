//! The life of a shard's row: when it is made, how long it is held back, when it may go. Pure
//! functions of what the stream lists and what the table has.
//!
//! The rules are those of the Kinesis Client Library's `HierarchicalShardSyncer` and
//! `LeaseCleanupManager`, where they lose nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::position::{InitialPosition, Position};
use crate::shard::{HashKeyRange, Shard, ShardId};

/// What the table has, by shard: how far each was read, and what it came from.
pub(crate) type Rows = BTreeMap<ShardId, Known>;

/// What a row says of its shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) checkpoint: Position,
    pub(crate) parents: BTreeSet<ShardId>,
    pub(crate) hash_keys: HashKeyRange,
}

/// The rows that are missing for `listed`, in the order in which they are to be made: parents
/// first.
///
/// What descends from a shard that has a row is read from its beginning, wherever the first shards
/// were to be begun with: all of it arrived after that. No generation is skipped. The first shards
/// of a [`Latest`](InitialPosition::Latest) start are those that are open now, and begin at `now`
/// (milliseconds since 1970): the word itself would let a restart skip what arrived meanwhile.
/// Those of any other start are the oldest that are listed, and what became of them follows.
pub(crate) fn missing(
    listed: &[Shard],
    rows: &Rows,
    initial: InitialPosition,
    now: u64,
) -> Vec<(Shard, Position)> {
    let family = Family { listed: listed.iter().map(|shard| (&shard.id, shard)).collect(), rows };
    let mut found = BTreeMap::new();
    for shard in listed.iter().filter(|shard| shard.is_open()) {
        family.first_missing(shard, initial, now, &mut found);
    }
    let mut found: Vec<_> = found.into_values().collect();
    // As the Kinesis Client Library does, so that whoever stops half way leaves a table from which
    // this goes on.
    found.sort_by(|(one, _), (other, _)| (&one.begins, &one.id).cmp(&(&other.begins, &other.id)));
    found
}

/// Whether a shard may be read: each of its parents has been read to its end, or is not known any
/// more.
pub(crate) fn may_be_read(shard: &Known, rows: &Rows) -> bool {
    let over = |parent| rows.get(parent).is_none_or(|row| row.checkpoint == Position::ShardEnd);
    shard.parents.iter().all(over)
}

/// The rows that nobody needs any more.
///
/// Of a shard that was read to its end: once all that it became has been begun with, and what it
/// came from has gone. Of a shard that the stream has dropped, whether it was read or not: once all
/// that it became has a row. Earlier, a row would be made again; or its children's, from where a
/// first shard begins.
pub(crate) fn unneeded(listed: &[Shard], rows: &Rows) -> Vec<ShardId> {
    let mut children: BTreeMap<&ShardId, BTreeSet<&ShardId>> = BTreeMap::new();
    let of_rows = rows.iter().map(|(id, row)| (id, row.parents.iter().collect::<Vec<_>>()));
    let of_listed = listed.iter().map(|shard| (&shard.id, shard.parents.iter().collect()));
    for (child, parents) in of_rows.chain(of_listed) {
        for parent in parents {
            children.entry(parent).or_default().insert(child);
        }
    }
    let is_listed: BTreeSet<_> = listed.iter().map(|shard| &shard.id).collect();
    let begun = |child: &&ShardId| rows.get(*child).is_some_and(Known::is_begun);
    let unneeded = |id: &ShardId, row: &Known| {
        let children = children.get(id);
        if !is_listed.contains(id) {
            return children.is_none_or(|all| all.iter().all(|child| rows.contains_key(*child)));
        }
        row.checkpoint == Position::ShardEnd
            && children.is_some_and(|all| all.iter().all(begun))
            && !row.parents.iter().any(|parent| rows.contains_key(parent))
    };
    rows.iter().filter(|(id, row)| unneeded(id, row)).map(|(id, _)| id.clone()).collect()
}

/// The hash keys that are in none of `ranges`.
pub(crate) fn gaps(ranges: impl IntoIterator<Item = HashKeyRange>) -> Vec<HashKeyRange> {
    let mut ranges: Vec<_> = ranges.into_iter().collect();
    ranges.sort_unstable();
    let mut gaps = Vec::new();
    let mut next = Some(0_u128);
    for range in ranges {
        let Some(first) = next else { break };
        if let Some(before) = range.first().checked_sub(1) {
            gaps.extend(HashKeyRange::new(first, before));
        }
        next = next.max(range.last().checked_add(1)).filter(|_| range.last() < u128::MAX);
    }
    gaps.extend(next.and_then(|first| HashKeyRange::new(first, u128::MAX)));
    gaps
}

/// The shards of a stream, and which of them have rows.
struct Family<'a> {
    listed: BTreeMap<&'a ShardId, &'a Shard>,
    rows: &'a Rows,
}

impl Family<'_> {
    /// Finds what has to be made before `shard` can be read, and it itself, if nothing has.
    fn first_missing(
        &self,
        shard: &Shard,
        initial: InitialPosition,
        now: u64,
        found: &mut BTreeMap<ShardId, (Shard, Position)>,
    ) {
        if self.rows.contains_key(&shard.id) || found.contains_key(&shard.id) {
            return;
        }
        let descends = self.descends(shard);
        let ancestors_first = descends || initial != InitialPosition::Latest;
        let parents = shard.parents.iter().filter(|parent| !self.rows.contains_key(*parent));
        let mut missing = parents.filter_map(|parent| self.listed.get(parent)).peekable();
        if ancestors_first && missing.peek().is_some() {
            for parent in missing {
                self.first_missing(parent, initial, now, found);
            }
            return;
        }
        let position = match initial {
            InitialPosition::AtTimestamp(at) => Position::AtTimestamp(at),
            InitialPosition::Latest if !descends => Position::AtTimestamp(now),
            InitialPosition::Latest | InitialPosition::TrimHorizon => Position::TrimHorizon,
        };
        found.insert(shard.id.clone(), (shard.clone(), position));
    }

    /// Whether anything that it came from has a row.
    fn descends(&self, shard: &Shard) -> bool {
        let mut seen = BTreeSet::new();
        let mut ancestors: Vec<_> = shard.parents.iter().collect();
        while let Some(ancestor) = ancestors.pop() {
            if self.rows.contains_key(ancestor) {
                return true;
            }
            if seen.insert(ancestor) {
                ancestors.extend(self.listed.get(ancestor).into_iter().flat_map(|it| &it.parents));
            }
        }
        false
    }
}

impl Known {
    /// Whether a record of it has been read.
    fn is_begun(&self) -> bool {
        matches!(self.checkpoint, Position::Record(_) | Position::ShardEnd)
    }
}
