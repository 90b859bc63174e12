//! Assigns the shards of an application to its workers.
//!
//! Start here with [`plan`], a pure function of the shards, their holders and the workers. `decide`
//! compares the plan with the shards that one worker holds, and returns the worker's next steps. `fleet`
//! reads the rows in which the workers announce themselves.

pub(crate) mod decide;
pub(crate) mod fleet;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;

use lease_core::{LeaseKey, Lessee};
use siphasher::sip::SipHasher13;

/// Describes a worker for the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// The worker's name, which is the lessee of its leases.
    pub name: Lessee,
    /// Whether the worker stays or leaves.
    pub state: MemberState,
    /// The worker's share relative to other workers, 1 to 1,000.
    pub weight: u16,
    /// The maximum number of shards that the worker reads.
    pub most: Option<usize>,
    /// The predecessor, if any. This worker gets no shards until the predecessor leaves, and then gets all of
    /// the predecessor's shards. So a rolling deployment moves each shard once.
    pub replaces: Option<Lessee>,
}

/// Whether a worker stays or leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a worker stays or leaves")]
pub enum MemberState {
    /// The worker obtains shards.
    Live,
    /// The worker hands over all of its shards.
    Leaving,
}

impl Member {
    /// Creates a staying worker of weight 1, without a limit of shards.
    pub fn new(name: Lessee) -> Self {
        Self { name, state: MemberState::Live, weight: 1, most: None, replaces: None }
    }
}

/// Assigns a worker to each key. The values of `held` are the current holders.
///
/// All workers compute the same plan from the same input, whatever the order of `members`. With equal weights
/// and no limits, the numbers of keys of two members differ by at most one. No other plan with this property
/// moves fewer keys. A key has no entry if no member may get another key.
///
/// A free key goes to a member below its quota: the member with the largest hash of key and name ([rendezvous
/// hashing](https://doi.org/10.1109/90.663936)). So different views of one key change the plan of few other
/// keys.
pub fn plan(
    held: &BTreeMap<LeaseKey, Option<Lessee>>,
    members: &[Member],
) -> BTreeMap<LeaseKey, Lessee> {
    plan_amid(&Reshaping::default(), held, members)
}

#[derive(Debug, Default)]
pub(crate) struct Reshaping {
    /// The *ending* shards: shards that were split or merged, and that no worker has read to the end.
    pub(crate) ending: BTreeSet<LeaseKey>,
    /// The number of their children, which no worker reads before the parents' end.
    pub(crate) waiting: usize,
}

/// Computes the [`plan`] while shards are split or merged. *Lasting* shards are not ending.
///
/// A free lasting shard goes to a member below its quota of lasting shards, even above its total quota.
/// Otherwise, a member that finishes merged parents early would get too many children, and hand them over
/// later.
pub(crate) fn plan_amid(
    reshaping: &Reshaping,
    held: &BTreeMap<LeaseKey, Option<Lessee>>,
    members: &[Member],
) -> BTreeMap<LeaseKey, Lessee> {
    let ends = |key: &LeaseKey| reshaping.ending.contains(key);
    let eligible = eligible(members);
    let (mut holdings, mut free) = holdings(held, &eligible, &successors(members));

    let mut total = Capacity::new();
    for (member, quota) in quotas(&eligible, held.len(), &counts(&holdings, |_key| true)) {
        let Some(keys) = holdings.get_mut(member) else { continue };
        // A member gives away ending shards first.
        keys.sort_by_cached_key(|key| {
            (!ends(key), rendezvous_hash(key.as_str(), member.as_str()), *key)
        });
        free.extend(keys.drain(..keys.len().saturating_sub(quota)));
        total.insert(member, quota - keys.len());
    }
    let held_lasting = counts(&holdings, |key| !ends(key));
    let all_lasting = held.keys().filter(|key| !ends(key)).count() + reshaping.waiting;
    let quotas = quotas(&eligible, all_lasting, &held_lasting).into_iter();
    let left = |member, quota: usize| quota.saturating_sub(count(&held_lasting, member));
    let lasting = quotas.map(|(member, quota)| (member, left(member, quota))).collect();
    let held_in_all = counts(&holdings, |_key| true);
    let limit = eligible.iter().map(|member| {
        let most = member.most.unwrap_or(usize::MAX);
        (&member.name, most.saturating_sub(count(&held_in_all, &member.name)))
    });
    let mut capacities = Capacities { total, lasting, limit: limit.collect() };

    free.sort_by_cached_key(|key| (rendezvous_hash(key.as_str(), ""), *key));
    let mut planned: BTreeMap<_, _> = holdings
        .into_iter()
        .flat_map(|(member, keys)| keys.into_iter().map(|key| (key.clone(), member.clone())))
        .collect();
    for key in free {
        let assigned =
            if ends(key) { capacities.assign_ending(key) } else { capacities.assign_lasting(key) };
        planned.extend(assigned.map(|member| (key.clone(), member.clone())));
    }
    planned
}

/// The keys that each member or its predecessor holds.
type Holdings<'a> = BTreeMap<&'a Lessee, Vec<&'a LeaseKey>>;

type Capacity<'a> = BTreeMap<&'a Lessee, usize>;

/// Three bounds of the number of keys that each member may still get.
struct Capacities<'a> {
    /// The quota of all keys.
    total: Capacity<'a>,
    /// The quota of the keys of lasting shards.
    lasting: Capacity<'a>,
    /// The member's own limit.
    limit: Capacity<'a>,
}

impl<'a> Capacities<'a> {
    fn assign_ending(&mut self, key: &LeaseKey) -> Option<&'a Lessee> {
        let member = self.best(key, |member| count(&self.total, member) > 0)?;
        take_one(&mut self.total, member);
        take_one(&mut self.limit, member);
        Some(member)
    }

    /// The first choice is a member below both quotas. The second choice is a member below its quota of
    /// lasting keys and its own limit. The third choice is a member below its total quota.
    fn assign_lasting(&mut self, key: &LeaseKey) -> Option<&'a Lessee> {
        let has_total = |member: &Lessee| count(&self.total, member) > 0;
        let has_lasting = |member: &Lessee| count(&self.lasting, member) > 0;
        let has_limit = |member: &Lessee| count(&self.limit, member) > 0;
        let member = self
            .best(key, |member| has_total(member) && has_lasting(member))
            .or_else(|| self.best(key, |member| has_lasting(member) && has_limit(member)))
            .or_else(|| self.best(key, has_total))?;
        for capacity in [&mut self.total, &mut self.limit, &mut self.lasting] {
            take_one(capacity, member);
        }
        Some(member)
    }

    fn best(&self, key: &LeaseKey, fits: impl Fn(&Lessee) -> bool) -> Option<&'a Lessee> {
        let fitting = self.total.keys().copied().filter(|member| fits(member));
        fitting.max_by_key(|member| (rendezvous_hash(key.as_str(), member.as_str()), *member))
    }
}

fn take_one(capacity: &mut Capacity<'_>, member: &Lessee) {
    if let Some(left) = capacity.get_mut(member) {
        *left = left.saturating_sub(1);
    }
}

/// Returns the keys of each eligible member, and the keys that no eligible member holds.
fn holdings<'a>(
    held: &'a BTreeMap<LeaseKey, Option<Lessee>>,
    eligible: &[&'a Member],
    successors: &BTreeMap<&Lessee, &Lessee>,
) -> (Holdings<'a>, Vec<&'a LeaseKey>) {
    let mut holdings: Holdings<'a> =
        eligible.iter().map(|member| (&member.name, Vec::new())).collect();
    let mut free = Vec::new();
    for (key, holder) in held {
        let holder = holder.as_ref().map(|holder| *successors.get(holder).unwrap_or(&holder));
        match holder.and_then(|holder| holdings.get_mut(holder)) {
            Some(keys) => keys.push(key),
            None => free.push(key),
        }
    }
    (holdings, free)
}

fn counts<'a>(holdings: &Holdings<'a>, counted: impl Fn(&LeaseKey) -> bool) -> Capacity<'a> {
    let number = |keys: &Vec<&LeaseKey>| keys.iter().filter(|key| counted(key)).count();
    holdings.iter().map(|(member, keys)| (*member, number(keys))).collect()
}

fn count(counts: &Capacity<'_>, member: &Lessee) -> usize {
    counts.get(member).copied().unwrap_or(0)
}

/// Omits members without a successor.
fn successors(members: &[Member]) -> BTreeMap<&Lessee, &Lessee> {
    let names: BTreeSet<_> = staying(members).map(|member| &member.name).collect();
    let replacing =
        staying(members).filter_map(|member| Some((member.replaces.as_ref()?, &member.name)));
    let replacing = replacing.filter(|(replaced, _)| !names.contains(replaced));
    let mut successors = BTreeMap::new();
    for (replaced, successor) in replacing {
        // If a member has two successors, the smaller name wins, whatever the order of the rows.
        let first = successors.entry(replaced).or_insert(successor);
        *first = successor.min(first);
    }
    successors
}

/// Returns the members that get keys, sorted by name. A member gets no keys while its predecessor stays.
pub(crate) fn eligible(members: &[Member]) -> Vec<&Member> {
    let names: BTreeSet<_> = staying(members).map(|member| &member.name).collect();
    let waits = |member: &Member| {
        let replaces = member.replaces.as_ref().filter(|replaced| **replaced != member.name);
        replaces.is_some_and(|replaced| names.contains(replaced))
    };
    let mut eligible: Vec<_> = staying(members).filter(|member| !waits(member)).collect();
    eligible.sort_by(|one, other| one.name.cmp(&other.name));
    eligible.dedup_by(|one, other| one.name == other.name);
    eligible
}

fn staying(members: &[Member]) -> impl Iterator<Item = &Member> {
    members.iter().filter(|member| member.state == MemberState::Live)
}

/// Returns each member's share of `keys`, rounded down. Remaining keys go first to members that hold more
/// than their share. The next keys go to the members that lost most by the rounding.
fn quotas<'a>(
    eligible: &[&'a Member],
    keys: usize,
    held: &Capacity<'_>,
) -> BTreeMap<&'a Lessee, usize> {
    let mut quotas = BTreeMap::new();
    let (mut left, mut open) = (keys, eligible.to_vec());
    // If a member's limit is below its share, other members get more keys, and may reach their own limits.
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
            let more = count(held, &member.name) > share;
            by_claim.push((more, rest, rendezvous_hash("", member.name.as_str()), &member.name));
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

/// Returns the score of `member` for `key`, by which [`plan`] breaks ties (rendezvous hashing).
///
/// The algorithm and its seed are fixed, so all processes and versions compute the same score.
pub fn rendezvous_hash(key: &str, member: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(key.as_bytes());
    // No UTF-8 text has this byte, so it separates the two texts.
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

    /// The holder `-` stands for free keys. Keys with `old` in front belong to ending shards.
    fn held(by: &[(&str, &str)]) -> BTreeMap<LeaseKey, Option<Lessee>> {
        let keys = by.iter().flat_map(|(holder, keys)| {
            let holder = (*holder != "-").then(|| name(holder));
            keys.split(' ').map(move |one| (key(one), holder.clone()))
        });
        keys.collect()
    }

    fn amid(
        held: &BTreeMap<LeaseKey, Option<Lessee>>,
        waiting: usize,
    ) -> BTreeMap<LeaseKey, Lessee> {
        let ending = held.keys().filter(|key| key.as_str().starts_with("old")).cloned().collect();
        let members = ["a", "b"].map(|member| Member::new(name(member)));
        plan_amid(&Reshaping { ending, waiting }, held, &members)
    }

    #[test]
    fn lasting_shard_goes_to_member_below_lasting_quota() {
        let held = held(&[("a", "new-1 new-2"), ("b", "old-1 old-2 old-3 old-4"), ("-", "new-3")]);

        assert_eq!(amid(&held, 1)[&key("new-3")], name("b"));
    }

    #[test]
    fn ending_shards_are_given_away_first() {
        let held = held(&[("a", "new-1 new-2"), ("b", "old-1 old-2 old-3 new-3 new-4 new-5")]);
        let planned = amid(&held, 0);

        for lasts in ["new-3", "new-4", "new-5"] {
            assert_eq!(planned[&key(lasts)], name("b"));
        }
        let of_a = planned.values().filter(|member| **member == name("a")).count();
        assert_eq!(of_a, 4);
    }

    #[test]
    fn ending_shards_are_spread_while_children_wait() {
        let held = held(&[("a", "old-1 old-2 old-3 old-4")]);
        let planned = amid(&held, 2);

        let of_b = planned.values().filter(|member| **member == name("b")).count();
        assert_eq!((planned.len(), of_b), (4, 2));
    }

    #[test]
    fn member_at_its_limit_gets_no_lasting_shard() {
        let held = held(&[
            ("a", "old-1 old-2 old-3 old-4"),
            ("b", "new-1 new-2 new-3 new-4 new-5 new-6"),
            ("-", "new-7"),
        ]);
        let ending = held.keys().filter(|key| key.as_str().starts_with("old")).cloned().collect();
        let mut members = ["a", "b"].map(|member| Member::new(name(member)));
        members[0].most = Some(4);

        let planned = plan_amid(&Reshaping { ending, waiting: 0 }, &held, &members);

        assert_eq!(planned.values().filter(|member| **member == name("a")).count(), 4);
    }

    #[test]
    fn member_with_huge_limit_gets_equal_share() {
        let held: BTreeMap<_, _> = (0..12).map(|n| (key(&format!("key-{n}")), None)).collect();
        let mut members = ["a", "b", "c", "d"].map(|member| Member::new(name(member)));
        for most in [1 << 62, usize::MAX] {
            members[0].most = Some(most);

            let planned = plan(&held, &members);

            assert_eq!(planned.values().filter(|member| **member == name("a")).count(), 3);
        }
    }
}
