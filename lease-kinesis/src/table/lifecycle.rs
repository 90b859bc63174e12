//! Decides when a shard's row is created, when a worker may read the shard, and when the row is removed.
//! All functions are pure. They take the stream's list of shards and the table's rows.
//!
//! The rules are those of the Kinesis Client Library's `HierarchicalShardSyncer` and
//! `LeaseCleanupManager`, except for rules that lose records.

use std::collections::{BTreeMap, BTreeSet};

use crate::position::{InitialPosition, Position};
use crate::shard::{HashKeyRange, Shard, ShardId};

/// The rows of a stream's shards.
pub(crate) type Rows = BTreeMap<ShardId, RowState>;

/// The state of a shard as its row stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowState {
    pub(crate) checkpoint: Position,
    pub(crate) parents: BTreeSet<ShardId>,
    pub(crate) hash_keys: HashKeyRange,
}

/// Returns the shards of `listed` whose rows are missing, with the positions to start at. Parents
/// come first. The caller creates the rows in this order.
///
/// A descendant of a shard with a row is read from its first record. If the initial position is a time, the
/// descendant is read from that time. So no record that arrived after the application's first start is skipped.
/// A descendant gets no row before its parents.
///
/// With [`Latest`](InitialPosition::Latest), reading begins at the open shards. Their rows store the start
/// time, not the word `LATEST`, because with that word, a restart would skip records. With any other initial
/// position, reading begins at the oldest listed shards, and their descendants follow.
pub(crate) fn missing(
    listed: &[Shard],
    rows: &Rows,
    initial: InitialPosition,
) -> Vec<(Shard, Position)> {
    let by_id: BTreeMap<_, _> = listed.iter().map(|shard| (&shard.id, shard)).collect();
    let descendants = descendants(listed, rows);
    // Visits each shard once. If a stream is split and merged daily, too many paths lead from its open shards
    // to its oldest shards.
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
    // The Kinesis Client Library uses this order, too. If creation stops half way, the table is still
    // consistent.
    missing.sort_by(|(one, _), (other, _)| (&one.begins, &one.id).cmp(&(&other.begins, &other.id)));
    missing
}

/// Returns the start position of a descendant: its first record, or the configured time.
pub(crate) fn of_descendant(initial: InitialPosition) -> Position {
    match initial {
        InitialPosition::AtTimestamp(at) => Position::AtTimestamp(at),
        InitialPosition::Latest | InitialPosition::TrimHorizon => Position::TrimHorizon,
    }
}

/// Reports whether a row may be created for `shard` at the end of one of its parents. This requires that all
/// of its parents have rows.
///
/// One parent of a merged shard may be read to its end before the other parent has a row. A parent without
/// a row delays no child. So, if `shard` got a row, a worker would read it before the other parent. A later
/// sync finds such a shard [`missing`].
pub(crate) fn may_be_created(shard: &Shard, with_rows: &BTreeSet<&ShardId>) -> bool {
    shard.parents.iter().all(|parent| with_rows.contains(parent))
}

/// Reports whether `child` names all of its parents. The child comes from Kinesis' report of the end
/// of one parent. The hash keys of this parent are `hash_keys`.
///
/// A child with a hash key outside of `hash_keys` also has another parent. An emulator reports only one
/// parent of a merged shard. Without this check, a worker would read the merged shard before its other
/// parent.
pub(crate) fn names_all_parents(child: &Shard, hash_keys: HashKeyRange) -> bool {
    let Shard { parents, hash_keys: of_child, .. } = child;
    parents.len() > 1
        || (hash_keys.contains(of_child.first()) && hash_keys.contains(of_child.last()))
}

/// Reports whether `listed` has all children of `shard`. The stream may have dropped a child. Then open
/// shards with the same hash keys count instead. The hash keys of `shard` are `hash_keys`.
///
/// A stream may list a shard as closed before it lists the shard's children. It may list one child before the
/// other child.
pub(crate) fn is_succeeded(shard: &ShardId, hash_keys: HashKeyRange, listed: &[Shard]) -> bool {
    let others = listed.iter().filter(|other| other.id != *shard);
    let later = others.filter(|other| other.is_open() || other.parents.contains(shard));
    let gaps = gaps(later.map(|later| later.hash_keys));
    !gaps.into_iter().any(|gap| overlap(gap, hash_keys))
}

/// Returns the shards of `listed` that descend from a shard with a row.
///
/// The stream may have dropped such a shard and its children. Then no listed shard names the dropped
/// shard. But each listed shard that shares a hash key with it descends from it. If two shards share a hash
/// key, the younger descends from the older. A dropped shard is older than the listed shards.
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

/// Reports whether a worker may read a shard: each of its parents has been read to its end, or has no
/// row.
pub(crate) fn may_be_read(shard: &RowState, rows: &Rows) -> bool {
    let over = |parent| rows.get(parent).is_none_or(|row| row.checkpoint == Position::ShardEnd);
    shard.parents.iter().all(over)
}

/// Why a row is obsolete, or seems to be obsolete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Obsolete {
    /// The shard was read to its end, or all of its children have rows. Removing the row loses no record.
    Succeeded,
    /// The stream does not list the shard or a child of it, and the shard was not read to its end. Either
    /// its records have expired, or the worker reads another stream than before.
    Stray,
    /// A stray row that shares hash keys with an open shard of a smaller id. In one stream, that shard would
    /// descend from the row's shard and have a larger id. So the row belongs to another stream.
    Foreign,
    /// The row says that the shard was read to its end, but the shard is open. So a shard of the same name
    /// was read in another stream.
    ReadElsewhere,
}

/// Returns the obsolete rows. Returns none while rows of `missing` must be created.
///
/// A shard that was read to its end may descend from a [`missing`] shard, for example after an
/// interrupted first start. If its row were removed, the worker would create it again at the parent's end.
///
/// The row of a shard that was read to its end is obsolete once all children have checkpoints and
/// no parent has a row. The row of a shard that the stream has dropped is obsolete once all
/// children have rows, whether it was read or not. If the row were removed before that, it would be
/// created again, or its children would start at the initial position. If an unread shard has no
/// listed child, its row may still be needed, and the reason is [`Stray`](Obsolete::Stray) or
/// [`Foreign`](Obsolete::Foreign).
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

/// Reports whether an open shard with a smaller id shares hash keys with the row.
fn is_younger_than_open_shard(id: &ShardId, row: &RowState, listed: &[Shard]) -> bool {
    let mut open = listed.iter().filter(|shard| shard.is_open());
    open.any(|open| open.id < *id && overlap(open.hash_keys, row.hash_keys))
}

/// Returns the hash keys that no range covers.
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
    /// Reports whether the row has a checkpoint at a record or at the end.
    fn is_begun(&self) -> bool {
        matches!(self.checkpoint, Position::Record(_) | Position::ShardEnd)
    }
}

#[cfg(test)]
mod tests;
