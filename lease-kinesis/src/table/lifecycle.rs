//! Decides when a shard's row is created, when a worker may read the shard, and when the row is removed.
//!
//! The rules are those of the Kinesis Client Library's `HierarchicalShardSyncer` and
//! `LeaseCleanupManager`, except for rules that lose records.

use std::collections::{BTreeMap, BTreeSet};

use crate::position::{InitialPosition, Position};
use crate::shard::{HashKeyRange, Shard, ShardId};

pub(crate) type Rows = BTreeMap<ShardId, RowState>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowState {
    pub(crate) checkpoint: Position,
    pub(crate) parents: BTreeSet<ShardId>,
    pub(crate) hash_keys: HashKeyRange,
}

/// Returns the shards without rows, with the positions to start at. Parents come first. The caller creates
/// the rows in this order.
///
/// A descendant of a shard with a row starts at its first record, or at the configured time. So no record is
/// skipped.
///
/// With [`Latest`](InitialPosition::Latest), reading begins at the open shards, at the stored start time.
/// With any other initial position, reading begins at the oldest listed shards.
pub(crate) fn missing(
    listed: &[Shard],
    rows: &Rows,
    initial: InitialPosition,
) -> Vec<(Shard, Position)> {
    let by_id: BTreeMap<_, _> = listed.iter().map(|shard| (&shard.id, shard)).collect();
    let descendants = descendants(listed, rows);
    // In a stream that is split and merged daily, too many paths lead from the open to the oldest shards.
    let mut reached = BTreeSet::new();
    let mut next: Vec<_> = listed.iter().filter(|shard| shard.is_open()).collect();
    let mut missing = Vec::new();
    while let Some(shard) = next.pop() {
        if rows.contains_key(&shard.id) || !reached.insert(&shard.id) {
            continue;
        }
        let descends = descendants.contains(&shard.id);
        let parents = shard.parents.iter().filter(|parent| !rows.contains_key(*parent));
        let mut parents = parents.filter_map(|parent| by_id.get(parent).copied()).peekable();
        if parents.peek().is_some() && (descends || initial != InitialPosition::Latest) {
            next.extend(parents);
            continue;
        }
        let position = match initial {
            InitialPosition::Latest if !descends => Position::Latest,
            InitialPosition::AtTimestamp(_)
            | InitialPosition::Latest
            | InitialPosition::TrimHorizon => of_descendant(initial),
        };
        missing.push((shard.clone(), position));
    }
    // In this order, the table is consistent even if the creation stops half way.
    missing.sort_by(|(one, _), (other, _)| (&one.begins, &one.id).cmp(&(&other.begins, &other.id)));
    missing
}

pub(crate) fn of_descendant(initial: InitialPosition) -> Position {
    match initial {
        InitialPosition::AtTimestamp(at) => Position::AtTimestamp(at),
        InitialPosition::Latest | InitialPosition::TrimHorizon => Position::TrimHorizon,
    }
}

/// All parents of `shard` must have rows. A parent without a row would delay no child, so a worker would read
/// the child first. A later sync finds such a shard [`missing`].
pub(crate) fn may_be_created(shard: &Shard, with_rows: &BTreeSet<&ShardId>) -> bool {
    shard.parents.iter().all(|parent| with_rows.contains(parent))
}

/// Whether `child` names all of its parents. An emulator reports only one parent of a merged shard. The
/// reported parent has the hash keys `hash_keys`. A child with another hash key also has another parent.
pub(crate) fn names_all_parents(child: &Shard, hash_keys: HashKeyRange) -> bool {
    let Shard { parents, hash_keys: of_child, .. } = child;
    parents.len() > 1
        || (hash_keys.contains(of_child.first()) && hash_keys.contains(of_child.last()))
}

/// Whether `listed` has all children of `shard`. A stream may list a shard as closed before its children.
/// Open shards with the same hash keys replace children that the stream has dropped.
pub(crate) fn is_succeeded(shard: &ShardId, hash_keys: HashKeyRange, listed: &[Shard]) -> bool {
    let others = listed.iter().filter(|other| other.id != *shard);
    let later = others.filter(|other| other.is_open() || other.parents.contains(shard));
    let gaps = gaps(later.map(|later| later.hash_keys));
    !gaps.into_iter().any(|gap| overlap(gap, hash_keys))
}

/// Returns the shards of `listed` that descend from a shard with a row.
///
/// The stream may have dropped the shard with the row, and all shards between. Then shared hash keys prove
/// the descent. Of two shards that share a hash key, the younger descends from the older. A dropped shard is
/// older than the listed shards.
fn descendants<'a>(listed: &'a [Shard], rows: &'a Rows) -> BTreeSet<&'a ShardId> {
    let mut children: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for shard in listed {
        for parent in &shard.parents {
            children.entry(parent).or_default().push(&shard.id);
        }
    }
    let is_listed: BTreeSet<_> = listed.iter().map(|shard| &shard.id).collect();
    let dropped = rows.iter().filter(|(id, _)| !is_listed.contains(id));
    let dropped: Vec<_> = dropped.map(|(_, row)| row.hash_keys).collect();
    let from_dropped = listed
        .iter()
        .filter(|shard| dropped.iter().any(|hash_keys| overlap(*hash_keys, shard.hash_keys)));

    let mut descendants: BTreeSet<_> = from_dropped.map(|shard| &shard.id).collect();
    let mut next: Vec<_> = rows.keys().chain(descendants.iter().copied()).collect();
    while let Some(ancestor) = next.pop() {
        for child in children.get(ancestor).into_iter().flatten().copied() {
            if descendants.insert(child) {
                next.push(child);
            }
        }
    }
    descendants
}

fn overlap(one: HashKeyRange, other: HashKeyRange) -> bool {
    one.first() <= other.last() && other.first() <= one.last()
}

pub(crate) fn may_be_read(shard: &RowState, rows: &Rows) -> bool {
    let over = |parent| rows.get(parent).is_none_or(|row| row.checkpoint == Position::ShardEnd);
    shard.parents.iter().all(over)
}

/// Why a row is obsolete, or seems to be obsolete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Obsolete {
    /// The shard was read to its end, or all of its children have rows.
    Succeeded,
    /// The stream lists neither the unread shard nor a child of it. Either its records have expired, or the
    /// worker reads another stream than before.
    Stray,
    /// A stray row that shares hash keys with an open shard of a smaller id. In one stream, that shard would
    /// descend from the row's shard, and have a larger id.
    Foreign,
    /// The row says that an open shard was read to its end. So a worker read a shard of the same name in
    /// another stream.
    ReadElsewhere,
}

/// Returns the obsolete rows. Returns none while rows of [`missing`] shards must be created. An ended shard
/// may descend from a missing shard, and would get a row again at the parent's end.
///
/// The row of an ended shard is obsolete once all children have checkpoints and no parent has a row. The row
/// of a dropped shard is obsolete once all children have rows. Otherwise, a sync would create the row again,
/// or the children would start at the initial position.
pub(crate) fn obsolete(
    listed: &[Shard],
    rows: &Rows,
    missing: &[(Shard, Position)],
) -> BTreeSet<(ShardId, Obsolete)> {
    if !missing.is_empty() {
        return BTreeSet::new();
    }
    let mut children: BTreeMap<&ShardId, BTreeSet<&ShardId>> = BTreeMap::new();
    let of_rows = rows.iter().map(|(id, row)| (id, row.parents.iter().collect::<Vec<_>>()));
    let of_listed = listed.iter().map(|shard| (&shard.id, shard.parents.iter().collect()));
    for (child, parents) in of_rows.chain(of_listed) {
        for parent in parents {
            children.entry(parent).or_default().insert(child);
        }
    }
    let of_listed: BTreeMap<_, _> = listed.iter().map(|shard| (&shard.id, shard)).collect();
    let with_children: BTreeSet<_> = listed.iter().flat_map(|shard| &shard.parents).collect();
    let begun = |child: &&ShardId| rows.get(*child).is_some_and(RowState::is_begun);
    let obsolete = |id: &ShardId, row: &RowState| {
        let is_read = row.checkpoint == Position::ShardEnd;
        let children = children.get(id);
        if let Some(shard) = of_listed.get(id) {
            if is_read && shard.is_open() {
                return Some(Obsolete::ReadElsewhere);
            }
            let succeeded = is_read
                && children.is_some_and(|all| all.iter().all(begun))
                && !row.parents.iter().any(|parent| rows.contains_key(parent));
            return succeeded.then_some(Obsolete::Succeeded);
        }
        if children.is_some_and(|all| !all.iter().all(|child| rows.contains_key(*child))) {
            return None;
        }
        Some(if is_read || with_children.contains(id) {
            Obsolete::Succeeded
        } else if is_younger_than_open_shard(id, row, listed) {
            Obsolete::Foreign
        } else {
            Obsolete::Stray
        })
    };
    rows.iter().filter_map(|(id, row)| Some((id.clone(), obsolete(id, row)?))).collect()
}

fn is_younger_than_open_shard(id: &ShardId, row: &RowState, listed: &[Shard]) -> bool {
    let mut open = listed.iter().filter(|shard| shard.is_open());
    open.any(|open| open.id < *id && overlap(open.hash_keys, row.hash_keys))
}

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

impl RowState {
    fn is_begun(&self) -> bool {
        matches!(self.checkpoint, Position::Record(_) | Position::ShardEnd)
    }
}

#[cfg(test)]
mod tests;
