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
/// of a [`Latest`](InitialPosition::Latest) start are those that are open now; whoever makes their
/// rows writes the time instead of the word, which would let a restart skip what arrived meanwhile.
/// Those of any other start are the oldest that are listed, and what became of them follows.
pub(crate) fn missing(
    listed: &[Shard],
    rows: &Rows,
    initial: InitialPosition,
) -> Vec<(Shard, Position)> {
    let by_id: BTreeMap<_, _> = listed.iter().map(|shard| (&shard.id, shard)).collect();
    let descendants = descendants(listed, rows);
    // Each is looked at once, however many ways lead to it: a stream that is split and merged every
    // day has more ways than can be walked.
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
    // As the Kinesis Client Library does, so that whoever stops half way leaves a table from which
    // this goes on.
    missing.sort_by(|(one, _), (other, _)| (&one.begins, &one.id).cmp(&(&other.begins, &other.id)));
    missing
}

/// Where what became of a shard is begun with: its first record, unless that is older than anybody
/// asked for.
pub(crate) fn of_descendant(initial: InitialPosition) -> Position {
    match initial {
        InitialPosition::AtTimestamp(at) => Position::AtTimestamp(at),
        InitialPosition::Latest | InitialPosition::TrimHorizon => Position::TrimHorizon,
    }
}

/// Whether a row may be made for `shard` when one of its parents has been read to its end: all of
/// them have one.
///
/// Of two shards that were merged, one may be generations ahead of the other. A parent without a
/// row holds nothing back, so the shard would be read before it; it is found
/// [`missing`] later.
pub(crate) fn may_be_made(shard: &Shard, with_rows: &BTreeSet<&ShardId>) -> bool {
    shard.parents.iter().all(|parent| with_rows.contains(parent))
}

/// Whether `child` names all that it came from, as one is told of it at the end of a shard that had
/// `hash_keys`.
///
/// Whatever has further hash keys came from a further shard. To a shard that was merged, an
/// emulator tells of a child that came from it alone: that would be read before the other.
pub(crate) fn names_its_parents(child: &Shard, hash_keys: HashKeyRange) -> bool {
    let Shard { parents, hash_keys: of_child, .. } = child;
    parents.len() > 1
        || (hash_keys.contains(of_child.first()) && hash_keys.contains(of_child.last()))
}

/// Whether all that `shard`, which had `hash_keys`, became is in `listed`; or, where the stream has
/// dropped that again, what is open in its place.
///
/// A stream may list a shard as closed before it lists what became of it, and one half of a split
/// before the other.
pub(crate) fn is_succeeded(shard: &ShardId, hash_keys: HashKeyRange, listed: &[Shard]) -> bool {
    let others = listed.iter().filter(|other| other.id != *shard);
    let later = others.filter(|other| other.is_open() || other.parents.contains(shard));
    let gaps = gaps(later.map(|later| later.hash_keys));
    !gaps.into_iter().any(|gap| have_some_in_common(gap, hash_keys))
}

/// Those of `listed` that came, over however many generations, from a shard that has a row.
///
/// Where the stream has dropped such a shard, it may have dropped the generations after it too, and
/// nothing that is listed names it. Then whatever has hash keys of its came from it: of any two
/// shards with a hash key in common the younger came from the older, and those that are dropped are
/// older than those that are not.
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
    let from_dropped = listed.iter().filter(|shard| {
        dropped.iter().any(|hash_keys| have_some_in_common(*hash_keys, shard.hash_keys))
    });

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

fn have_some_in_common(one: HashKeyRange, other: HashKeyRange) -> bool {
    one.first() <= other.last() && other.first() <= one.last()
}

/// Whether a shard may be read: each of its parents has been read to its end, or is not known any
/// more.
pub(crate) fn may_be_read(shard: &Known, rows: &Rows) -> bool {
    let over = |parent| rows.get(parent).is_none_or(|row| row.checkpoint == Position::ShardEnd);
    shard.parents.iter().all(over)
}

/// Why a row is not needed any more, or looks as if it were not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unneeded {
    /// All of its shard was read, or all that the shard became has a row: nothing can be lost.
    Succeeded,
    /// The stream lists neither its shard nor what came from that, and not all of it was read. All
    /// of that may be too old to be kept; or the row is of another stream, whose name is meant.
    Stray,
    /// A stray in whose place an older shard is open. Whatever comes from a shard is younger, and the
    /// shard ids of Kinesis grow: so the row is of another stream.
    Foreign,
    /// All of its shard was read, and its shard is open: it was read in another stream, which has a
    /// shard of that name.
    ReadElsewhere,
}

/// The rows that nobody needs any more; none, while those of `missing` are.
///
/// What was read to its end may come from a shard that is [`missing`], as after a first start that
/// died half way, and would be made again at that one's end.
///
/// Of a shard that was read to its end: once all that it became has been begun with, and what it
/// came from has gone. Of a shard that the stream has dropped, whether it was read or not: once all
/// that it became has a row. Earlier, a row would be made again; or its children's, from where a
/// first shard begins. Where the stream does not say that anything came from it, it may be needed all
/// the same, so it is told apart.
pub(crate) fn unneeded(
    listed: &[Shard],
    rows: &Rows,
    missing: &[(Shard, Position)],
) -> BTreeSet<(ShardId, Unneeded)> {
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
    let begun = |child: &&ShardId| rows.get(*child).is_some_and(Known::is_begun);
    let unneeded = |id: &ShardId, row: &Known| {
        let is_read = row.checkpoint == Position::ShardEnd;
        let children = children.get(id);
        if let Some(shard) = of_listed.get(id) {
            if is_read && shard.is_open() {
                return Some(Unneeded::ReadElsewhere);
            }
            let succeeded = is_read
                && children.is_some_and(|all| all.iter().all(begun))
                && !row.parents.iter().any(|parent| rows.contains_key(parent));
            return succeeded.then_some(Unneeded::Succeeded);
        }
        if children.is_some_and(|all| !all.iter().all(|child| rows.contains_key(*child))) {
            return None;
        }
        Some(if is_read || with_children.contains(id) {
            Unneeded::Succeeded
        } else if is_younger_than_its_place(id, row, listed) {
            Unneeded::Foreign
        } else {
            Unneeded::Stray
        })
    };
    rows.iter().filter_map(|(id, row)| Some((id.clone(), unneeded(id, row)?))).collect()
}

/// Whether an open shard that has hash keys of this one's is older than it.
fn is_younger_than_its_place(id: &ShardId, row: &Known, listed: &[Shard]) -> bool {
    let mut open = listed.iter().filter(|shard| shard.is_open());
    open.any(|open| open.id < *id && have_some_in_common(open.hash_keys, row.hash_keys))
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

impl Known {
    /// Whether a record of it has been read.
    fn is_begun(&self) -> bool {
        matches!(self.checkpoint, Position::Record(_) | Position::ShardEnd)
    }
}

#[cfg(test)]
mod tests;
