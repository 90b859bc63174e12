//! Who should read what: one pure function of who reads what, and of who is there.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;

use lease_core::{LeaseKey, Lessee};
use siphasher::sip::SipHasher13;

/// A worker, as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its name, which is the lessee of its leases.
    pub name: Lessee,
    /// Whether it stays.
    pub standing: Standing,
    /// How much it takes on beside the others, 1 to 1,000: twice the weight is twice the shards.
    pub weight: u16,
    /// The most shards that it takes on.
    pub most: Option<usize>,
    /// Whose place it takes. It gets nothing while that worker stays, and all of its shards when it
    /// goes: a rolling deployment then moves each shard once.
    pub replaces: Option<Lessee>,
}

/// Whether a worker stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a worker stays or goes")]
pub enum Standing {
    /// It takes on shards.
    Live,
    /// It hands over all that it has.
    Leaving,
}

impl Member {
    /// A worker that stays, of weight 1, that takes on as many shards as it is given.
    pub fn new(name: Lessee) -> Self {
        Self { name, standing: Standing::Live, weight: 1, most: None, replaces: None }
    }
}

/// Says who should have each of the keys in `held`, whose values are who has it now.
///
/// Every worker that sees the same comes to the same answer, in whatever order it sees it; and
/// whoever has what the plan says, keeps it. For members of equal weight, none has two keys more
/// than another, and no plan of which that is true moves fewer keys. A key is missing from the
/// answer where there are no members, or all have as many as they may.
///
/// Quotas are `keys / members`, rounded down, and one more for as many members as are needed, those
/// first who have that many already: so keys move only from who has too many. What is free goes to
/// the member below its quota with the largest hash of key and name
/// ([rendezvous hashing](https://doi.org/10.1109/90.663936)): two workers whose views differ
/// in one key differ in little else.
pub fn plan(
    held: &BTreeMap<LeaseKey, Option<Lessee>>,
    members: &[Member],
) -> BTreeMap<LeaseKey, Lessee> {
    let heirs = heirs(members);
    let staying = staying(members);
    let mut has: BTreeMap<&Lessee, Vec<&LeaseKey>> =
        staying.iter().map(|member| (&member.name, Vec::new())).collect();
    let mut free = Vec::new();
    for (key, holder) in held {
        let holder = holder.as_ref().map(|holder| *heirs.get(holder).unwrap_or(&holder));
        match holder.and_then(|holder| has.get_mut(holder)) {
            Some(keys) => keys.push(key),
            None => free.push(key),
        }
    }

    let mut room = BTreeMap::new();
    for (member, quota) in quotas(&staying, held.len(), &has) {
        let Some(keys) = has.get_mut(member) else { continue };
        // Those that fit worst go first.
        keys.sort_by_cached_key(|key| (hash(key.as_str(), member.as_str()), *key));
        free.extend(keys.drain(..keys.len().saturating_sub(quota)));
        if keys.len() < quota {
            room.insert(member, quota - keys.len());
        }
    }

    free.sort_by_cached_key(|key| (hash(key.as_str(), ""), *key));
    let mut planned: BTreeMap<_, _> = has
        .into_iter()
        .flat_map(|(member, keys)| keys.into_iter().map(|key| (key.clone(), member.clone())))
        .collect();
    for key in free {
        let best = room
            .keys()
            .copied()
            .max_by_key(|member| (hash(key.as_str(), member.as_str()), *member));
        let Some(member) = best else { break };
        planned.insert(key.clone(), member.clone());
        if let Some(left) = room.get_mut(member) {
            *left -= 1;
            if *left == 0 {
                room.remove(member);
            }
        }
    }
    planned
}

/// Who takes the place of those that go.
fn heirs(members: &[Member]) -> BTreeMap<&Lessee, &Lessee> {
    let stay: BTreeSet<_> = live(members).map(|member| &member.name).collect();
    let replacing =
        live(members).filter_map(|member| Some((member.replaces.as_ref()?, &member.name)));
    let mut heirs = BTreeMap::new();
    for (gone, heir) in replacing.filter(|(gone, _)| !stay.contains(gone)) {
        // Of two, the first by name, whatever the order in which they were seen.
        let first = heirs.entry(gone).or_insert(heir);
        *first = heir.min(first);
    }
    heirs
}

/// Those who get keys, in the order of their names. Who is to replace somebody that is still there
/// gets none.
fn staying(members: &[Member]) -> Vec<&Member> {
    let stay: BTreeSet<_> = live(members).map(|member| &member.name).collect();
    let waits = |member: &Member| {
        let replaces = member.replaces.as_ref().filter(|replaced| **replaced != member.name);
        replaces.is_some_and(|replaced| stay.contains(replaced))
    };
    let mut staying: Vec<_> = live(members).filter(|member| !waits(member)).collect();
    staying.sort_by(|one, other| one.name.cmp(&other.name));
    staying.dedup_by(|one, other| one.name == other.name);
    staying
}

fn live(members: &[Member]) -> impl Iterator<Item = &Member> {
    members.iter().filter(|member| member.standing == Standing::Live)
}

/// How many keys each is to have: its share of `keys`, rounded down, and what is left by that to
/// those first who have more than that already, then to those who lost most by the rounding.
fn quotas<'a>(
    staying: &[&'a Member],
    keys: usize,
    has: &BTreeMap<&Lessee, Vec<&LeaseKey>>,
) -> BTreeMap<&'a Lessee, usize> {
    let mut quotas = BTreeMap::new();
    let (mut left, mut open) = (keys, staying.to_vec());
    // Who may not have its share leaves more to the others, of whom others may then not.
    loop {
        let weights: usize = open.iter().map(|member| weight(member)).sum();
        let full = |member: &&Member| {
            member.most.is_some_and(|most| most * weights < left * weight(member))
        };
        let (capped, rest): (Vec<_>, Vec<_>) = open.into_iter().partition(full);
        open = rest;
        if capped.is_empty() {
            break;
        }
        for member in capped {
            let most = member.most.unwrap_or(usize::MAX).min(left);
            quotas.insert(&member.name, most);
            left -= most;
        }
    }

    let weights: usize = open.iter().map(|member| weight(member)).sum();
    let mut given = 0;
    let mut by_claim = Vec::new();
    for member in open {
        let (share, rest) = (left * weight(member) / weights, left * weight(member) % weights);
        quotas.insert(&member.name, share);
        given += share;
        if member.most.is_none_or(|most| most > share) {
            let more = has.get(&member.name).is_some_and(|keys| keys.len() > share);
            by_claim.push((more, rest, hash("", member.name.as_str()), &member.name));
        }
    }
    by_claim.sort_by(|one, other| other.cmp(one));
    for (_, _, _, name) in by_claim.into_iter().take(left - given) {
        quotas.entry(name).and_modify(|quota| *quota += 1);
    }
    quotas
}

fn weight(member: &Member) -> usize {
    member.weight.clamp(1, 1000).into()
}

/// The same in every process, and of every version: the algorithm and its key are fixed.
pub(crate) fn hash(key: &str, member: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(key.as_bytes());
    // Not part of any name.
    hasher.write_u8(0xff);
    hasher.write(member.as_bytes());
    hasher.finish()
}
