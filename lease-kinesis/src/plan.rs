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
    plan_amid(&Reshaping::default(), held, members)
}

/// What of an application's shards does not stay as it is.
#[derive(Debug, Default)]
pub(crate) struct Reshaping {
    /// Keys of what was split or merged, and is not read to its end yet.
    pub(crate) passing: BTreeSet<LeaseKey>,
    /// How many shards cannot be read before those have ended.
    pub(crate) coming: usize,
}

/// The [`plan`] while shards are split or merged.
///
/// Where two become one, who is early at the end of its shards has room for more of the new ones
/// than will be its share when the old ones are gone: each that it took would move once more. What
/// is free and lasts therefore goes to who has less of that than its share, if need be beside more of
/// the passing ones than is its share: those are the first that it gives away.
pub(crate) fn plan_amid(
    reshaping: &Reshaping,
    held: &BTreeMap<LeaseKey, Option<Lessee>>,
    members: &[Member],
) -> BTreeMap<LeaseKey, Lessee> {
    let passes = |key: &LeaseKey| reshaping.passing.contains(key);
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

    let mut room = Room::new();
    let had: BTreeMap<_, _> = has.iter().map(|(member, keys)| (*member, keys.len())).collect();
    for (member, quota) in quotas(&staying, held.len(), &had) {
        let Some(keys) = has.get_mut(member) else { continue };
        // Those that pass go first, and of each kind those that fit worst.
        keys.sort_by_cached_key(|key| (!passes(key), hash(key.as_str(), member.as_str()), *key));
        free.extend(keys.drain(..keys.len().saturating_sub(quota)));
        room.insert(member, quota - keys.len());
    }
    let lasting = |keys: &Vec<&LeaseKey>| keys.iter().filter(|key| !passes(key)).count();
    let last: BTreeMap<_, _> = has.iter().map(|(member, keys)| (*member, lasting(keys))).collect();
    let all_lasting = held.keys().filter(|key| !passes(key)).count() + reshaping.coming;
    let quotas = quotas(&staying, all_lasting, &last).into_iter();
    let mut lasting_room: Room<'_> = quotas
        .map(|(member, quota)| {
            (member, quota.saturating_sub(last.get(member).copied().unwrap_or(0)))
        })
        .collect();

    let mut most_room: Room<'_> = staying
        .iter()
        .map(|member| {
            let had = has.get(&member.name).map_or(0, Vec::len);
            (&member.name, member.most.unwrap_or(usize::MAX).saturating_sub(had))
        })
        .collect();

    free.sort_by_cached_key(|key| (hash(key.as_str(), ""), *key));
    let mut planned: BTreeMap<_, _> = has
        .into_iter()
        .flat_map(|(member, keys)| keys.into_iter().map(|key| (key.clone(), member.clone())))
        .collect();
    for key in free {
        let has_room =
            |room: &Room<'_>, member: &Lessee| room.get(member).is_some_and(|left| *left > 0);
        let best = |fits: &dyn Fn(&Lessee) -> bool| {
            let fitting = room.keys().copied().filter(|member| fits(member));
            fitting.max_by_key(|member| (hash(key.as_str(), member.as_str()), *member))
        };
        let by_room = || best(&|member| has_room(&room, member));
        // Beside more of the passing ones than is its share, but no more than it takes on.
        let beside =
            |member: &Lessee| has_room(&lasting_room, member) && has_room(&most_room, member);
        let best = if passes(key) {
            by_room()
        } else {
            best(&|member| has_room(&room, member) && has_room(&lasting_room, member))
                .or_else(|| best(&beside))
                .or_else(by_room)
        };
        let Some(member) = best else { continue };
        planned.insert(key.clone(), member.clone());
        let lasting = (!passes(key)).then_some(&mut lasting_room);
        let rooms = [Some(&mut room), Some(&mut most_room), lasting];
        for left in rooms.into_iter().flatten().filter_map(|room| room.get_mut(member)) {
            *left = left.saturating_sub(1);
        }
    }
    planned
}

/// How many keys more each is to have.
type Room<'a> = BTreeMap<&'a Lessee, usize>;

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
    has: &BTreeMap<&Lessee, usize>,
) -> BTreeMap<&'a Lessee, usize> {
    let mut quotas = BTreeMap::new();
    let (mut left, mut open) = (keys, staying.to_vec());
    // Who may not have its share leaves more to the others, of whom others may then not.
    loop {
        let weights: usize = open.iter().map(|member| weight(member)).sum();
        let full = |member: &&Member| {
            member.most.is_some_and(|most| most.saturating_mul(weights) < left * weight(member))
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
            let more = has.get(&member.name).is_some_and(|has| *has > share);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Lessee {
        Lessee::new(name).unwrap()
    }

    fn key(key: &str) -> LeaseKey {
        LeaseKey::new(key).unwrap()
    }

    /// Old ones end, new ones last: keys by who has them, with `-` for nobody.
    fn held(by: &[(&str, &str)]) -> BTreeMap<LeaseKey, Option<Lessee>> {
        let keys = by.iter().flat_map(|(holder, keys)| {
            let holder = (*holder != "-").then(|| name(holder));
            keys.split(' ').map(move |one| (key(one), holder.clone()))
        });
        keys.collect()
    }

    fn amid(
        held: &BTreeMap<LeaseKey, Option<Lessee>>,
        coming: usize,
    ) -> BTreeMap<LeaseKey, Lessee> {
        let passing = held.keys().filter(|key| key.as_str().starts_with("old")).cloned().collect();
        let members = ["a", "b"].map(|member| Member::new(name(member)));
        plan_amid(&Reshaping { passing, coming }, held, &members)
    }

    #[test]
    fn who_is_early_at_the_end_takes_no_more_than_its_share_of_what_lasts() {
        let held = held(&[("a", "new-1 new-2"), ("b", "old-1 old-2 old-3 old-4"), ("-", "new-3")]);

        assert_eq!(amid(&held, 1)[&key("new-3")], name("b"));
    }

    #[test]
    fn what_passes_is_given_away_before_what_lasts() {
        let held = held(&[("a", "new-1 new-2"), ("b", "old-1 old-2 old-3 new-3 new-4 new-5")]);
        let planned = amid(&held, 0);

        for lasts in ["new-3", "new-4", "new-5"] {
            assert_eq!(planned[&key(lasts)], name("b"));
        }
        let of_a = planned.values().filter(|member| **member == name("a")).count();
        assert_eq!(of_a, 4);
    }

    #[test]
    fn what_passes_is_spread_while_what_it_becomes_cannot_be_read_yet() {
        let held = held(&[("a", "old-1 old-2 old-3 old-4")]);
        let planned = amid(&held, 2);

        let of_b = planned.values().filter(|member| **member == name("b")).count();
        assert_eq!((planned.len(), of_b), (4, 2));
    }

    #[test]
    fn who_takes_on_so_many_gets_no_more_of_what_lasts() {
        let held = held(&[
            ("a", "old-1 old-2 old-3 old-4"),
            ("b", "new-1 new-2 new-3 new-4 new-5 new-6"),
            ("-", "new-7"),
        ]);
        let passing = held.keys().filter(|key| key.as_str().starts_with("old")).cloned().collect();
        let mut members = ["a", "b"].map(|member| Member::new(name(member)));
        members[0].most = Some(4);

        let planned = plan_amid(&Reshaping { passing, coming: 0 }, &held, &members);

        assert_eq!(planned.values().filter(|member| **member == name("a")).count(), 4);
    }

    #[test]
    fn who_takes_on_any_number_says_so_as_it_likes() {
        let held: BTreeMap<_, _> = (0..12).map(|n| (key(&format!("key-{n}")), None)).collect();
        let mut members = ["a", "b", "c", "d"].map(|member| Member::new(name(member)));
        for most in [1 << 62, usize::MAX] {
            members[0].most = Some(most);

            let planned = plan(&held, &members);

            assert_eq!(planned.values().filter(|member| **member == name("a")).count(), 3);
        }
    }
}
