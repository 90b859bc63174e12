//! KCL's rule for shares, and the shards that our workers plan and steal by this rule.
//!
//! KCL's rule is in `DynamoDBLeaseTaker`. A worker's share is the number of leases divided by the number of
//! workers, rounded up. A worker below its share takes expired leases. If no lease has expired, the worker
//! steals from the worker with the most leases.

use std::collections::{BTreeMap, BTreeSet};

use lease_core::{LeaseKey, Lessee};
use lease_kinesis::extension::{SharedTable, rendezvous_hash};
use lease_kinesis::{Member, MemberState};

/// Applies the rule to one listing.
pub(crate) struct LeaseTaker<'a>(pub(crate) &'a SharedTable<'a>);

impl LeaseTaker<'_> {
    pub(crate) fn free(&self) -> impl Iterator<Item = &LeaseKey> {
        self.0.held.iter().filter(|(_, holder)| holder.is_none()).map(|(key, _)| key)
    }

    /// Returns all rows of each KCL worker. The table does not show a KCL worker without a row.
    pub(crate) fn rows_of_kcl_workers(&self) -> BTreeMap<&Lessee, BTreeSet<&LeaseKey>> {
        let mut workers: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for key in self.0.foreign {
            if let Some(owner) = self.0.owners.get(key) {
                workers.entry(owner).or_default().insert(key);
            }
        }
        workers
    }

    /// Returns the readable shards of each KCL worker. A KCL worker may hold only ended shards.
    fn kcl_workers(&self) -> BTreeMap<&Lessee, Vec<&LeaseKey>> {
        let is_readable = |key: &&LeaseKey| self.0.held.contains_key(*key);
        let workers = self.rows_of_kcl_workers().into_iter();
        workers.map(|(name, rows)| (name, rows.into_iter().filter(is_readable).collect())).collect()
    }

    fn live_members(&self) -> impl Iterator<Item = &Lessee> {
        let live = self.0.members.iter().filter(|member| member.state == MemberState::Live);
        live.map(|member| &member.name)
    }

    fn is_live_member(&self, name: &Lessee) -> bool {
        self.live_members().any(|member| member == name)
    }

    /// KCL 3's leader, or a KCL worker of the same name, may have written the name of our worker to a row.
    fn is_neighbour(&self, name: &Lessee) -> bool {
        !self.0.members.iter().any(|member| member.name == *name)
    }

    fn workers(&self) -> usize {
        let neighbours = self.kcl_workers().into_keys().filter(|name| self.is_neighbour(name));
        (self.live_members().count() + neighbours.count()).max(1)
    }

    fn share(&self) -> usize {
        self.0.held.len().div_ceil(self.workers())
    }

    /// The share by KCL's count, which has ended shards. A KCL worker takes this number of rows.
    pub(crate) fn share_by_rows(&self) -> usize {
        let rows: BTreeSet<_> = self.0.held.keys().chain(self.0.owners.keys()).collect();
        rows.len().div_ceil(self.workers())
    }

    /// Returns how many shards our live workers may have together. KCL workers in `not_taking` keep what they
    /// have, and get no further shard.
    fn room(&self, not_taking: &BTreeSet<Lessee>) -> usize {
        let (mut shards, mut taking) = (self.0.held.len(), 0);
        for (name, leases) in self.kcl_workers() {
            if not_taking.contains(name) {
                shards -= leases.len();
            } else {
                taking += usize::from(self.is_neighbour(name));
            }
        }
        let live = self.live_members().count();
        match taking {
            0 => shards,
            taking => shards.div_ceil(live + taking) * live,
        }
    }

    /// Returns the shards of our workers. Up to our workers' share, also returns free shards. Also returns the shards
    /// that have been free for very long.
    ///
    /// The shards of a leaving worker go to our other workers, also beyond our share, so that they are read at once. The
    /// KCL workers steal the surplus. If no other worker of ours is left, the leaving worker releases its shards.
    pub(crate) fn plannable(
        &self,
        is_very_old: impl Fn(&LeaseKey) -> bool,
        reserved_for: impl Fn(&LeaseKey) -> Option<Lessee>,
        not_taking: &BTreeSet<Lessee>,
    ) -> BTreeMap<LeaseKey, Option<Lessee>> {
        let mut plannable = self.0.held.clone();
        plannable.retain(|key, _| !self.0.foreign.contains(key));
        if self.0.foreign.is_empty() {
            return plannable;
        }
        for (key, holder) in plannable.iter_mut().filter(|(_, holder)| holder.is_none()) {
            // The worker obtains the shard at its next look, so the shard is a part of its load.
            *holder = reserved_for(key).filter(|name| self.is_live_member(name));
        }
        let stays = |holder: &Option<Lessee>| {
            holder.as_ref().is_some_and(|holder| self.is_live_member(holder))
        };
        let ours = plannable.values().filter(|holder| stays(holder)).count();
        let mut room = self.room(not_taking).saturating_sub(ours);
        let mut fits = || {
            let fits = room > 0;
            room = room.saturating_sub(1);
            fits
        };
        let free = plannable.iter().filter(|(_, holder)| holder.is_none()).map(|(key, _)| key);
        let fitting: BTreeSet<_> = free.filter(|key| is_very_old(key) || fits()).cloned().collect();
        plannable.retain(|key, holder| holder.is_some() || fitting.contains(key));
        plannable
    }

    /// Returns how many shards the worker lacks. KCL workers count ended shards as load, and would steal back what
    /// exceeds the share by their count. So the worker lacks a shard only by both counts.
    fn need(&self, me: &Member) -> usize {
        let open = self.0.held.values().filter(|holder| holder.as_ref() == Some(&me.name));
        let by_open_shards = self.share().min(me.most.unwrap_or(usize::MAX));
        let own_rows = self.0.owners.values().filter(|owner| **owner == me.name);
        let by_rows = self.share_by_rows().saturating_sub(own_rows.count());
        by_open_shards.saturating_sub(open.count()).min(by_rows)
    }

    /// Returns at most `max` shards, and none while a shard is free.
    pub(crate) fn steals(&self, me: &Member, max: usize) -> Vec<(LeaseKey, Lessee)> {
        if self.free().next().is_some() {
            return Vec::new();
        }
        let workers = self.kcl_workers();
        let others = workers.iter().filter(|(owner, _)| **owner != &me.name);
        // If two workers have the same number of leases, the victim is the worker whose name sorts first.
        let victim =
            others.max_by(|(a, one), (b, other)| one.len().cmp(&other.len()).then(b.cmp(a)));
        let Some((victim, leases)) = victim else { return Vec::new() };
        let (share, need) = (self.share(), self.need(me));
        let spare = leases.len().saturating_sub(share);
        let count = match need.min(spare) {
            // If all KCL workers had exactly their share, a new worker would otherwise never get a lease.
            0 if need > 1 && leases.len() == share => 1,
            count => count,
        };
        let mut keys = leases.clone();
        // If two of our workers steal at the same time, they prefer different shards.
        keys.sort_by_cached_key(|key| (rendezvous_hash(key.as_str(), me.name.as_str()), *key));
        let stolen = keys.into_iter().take(count.min(max));
        stolen.map(|key| (key.clone(), (*victim).clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `a` and `b` are our workers, capitals are KCL workers, a dot means free. After a slash follow the owners of
    /// ended shards.
    struct Table {
        held: BTreeMap<LeaseKey, Option<Lessee>>,
        owners: BTreeMap<LeaseKey, Lessee>,
        foreign: BTreeSet<LeaseKey>,
        members: Vec<Member>,
    }

    fn table(owners: &str, members: &str) -> Table {
        let (open, ended) = owners.split_once('/').unwrap_or((owners, ""));
        let (mut held, mut foreign) = (BTreeMap::new(), BTreeSet::new());
        let mut owners = BTreeMap::new();
        for (number, name) in open.chars().chain(ended.chars()).enumerate() {
            let key: LeaseKey = format!("shop/shards/shard-{number:03}").parse().unwrap();
            if name.is_ascii_uppercase() {
                foreign.insert(key.clone());
            }
            let owner = (name != '.').then(|| name.to_string().parse::<Lessee>().unwrap());
            owners.extend(owner.clone().map(|owner| (key.clone(), owner)));
            if number < open.len() {
                held.insert(key, owner);
            }
        }
        Table { held, owners, foreign, members: members.chars().map(member).collect() }
    }

    fn member(name: char) -> Member {
        Member::new(name.to_string().parse().unwrap())
    }

    impl Table {
        fn listing(&self) -> SharedTable<'_> {
            let Self { held, owners, foreign, members } = self;
            SharedTable { held, owners, foreign, members }
        }

        fn plan(&self, not_taking: &str) -> BTreeMap<LeaseKey, Option<Lessee>> {
            let not_taking = not_taking.chars().map(|name| member(name).name).collect();
            LeaseTaker(&self.listing()).plannable(|_| false, |_| None, &not_taking)
        }

        /// Returns the numbers of free and of held shards.
        fn plannable(&self) -> (usize, usize) {
            let plannable = self.plan("");
            let free = plannable.values().filter(|holder| holder.is_none()).count();
            (free, plannable.len() - free)
        }

        fn steals(&self, me: char, max: usize) -> Vec<String> {
            let stolen = LeaseTaker(&self.listing()).steals(&member(me), max);
            stolen.into_iter().map(|(_, owner)| owner.as_str().to_owned()).collect()
        }
    }

    #[test]
    fn without_kcl_workers_all_shards_are_plannable() {
        assert_eq!(table("aab...", "ab").plannable(), (3, 3));
    }

    #[test]
    fn free_shards_are_plannable_up_to_our_share() {
        assert_eq!(table("AA......", "a").plannable(), (4, 0));
        assert_eq!(table("AA..aa..", "a").plannable(), (2, 2));
        assert_eq!(table("AAaaaa..", "a").plannable(), (0, 4));
        assert_eq!(table("AAaaaaaa", "a").plannable(), (0, 6), "our workers keep all their shards");
    }

    #[test]
    fn shards_free_for_long_are_plannable_beyond_our_share() {
        let table = table("AAaaaa..", "a");

        let all = LeaseTaker(&table.listing()).plannable(|_| true, |_| None, &BTreeSet::new());
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn leaving_worker_hands_over_all_its_shards() {
        let leaving = |owners: &str| {
            let mut table = table(owners, "ab");
            table.members[1].state = MemberState::Leaving;
            table.plannable()
        };

        assert_eq!(leaving("AABBaabb"), (0, 4), "one of two shards exceeds our share");
        assert_eq!(leaving("AABBaaabb"), (0, 5), "both shards exceed our share");
        assert_eq!(leaving("Aaabb.."), (2, 4), "free shards up to our share");
        assert_eq!(leaving("aabb"), (0, 4), "without KCL workers, all shards fit");
        assert_eq!(table("AAbb", "").plannable(), (0, 2), "all of our workers leave");
    }

    #[test]
    fn reserved_shard_counts_for_its_worker() {
        let table = table("AAAaa..", "a");
        let last = table.held.keys().next_back().cloned();
        let reserved = |name: char| {
            let reserved_for =
                |key: &LeaseKey| (last.as_ref() == Some(key)).then(|| member(name).name);
            let table = &table.listing();
            LeaseTaker(table).plannable(|_| false, reserved_for, &BTreeSet::new())
        };

        assert_eq!(reserved('a').get(last.as_ref().unwrap()), Some(&Some(member('a').name)));
        assert_eq!(reserved('a').len(), 4, "the other free shard still fits");
        assert_eq!(reserved('b').values().flatten().count(), 2, "b is not one of our live workers");
    }

    #[test]
    fn kcl_worker_that_takes_nothing_is_not_waited_for() {
        let table = table("AABB....", "a");

        assert_eq!(table.plan("").len(), 3);
        assert_eq!(table.plan("A").len(), 3, "half of the shards that A does not have");
        assert_eq!(table.plan("AB").len(), 4);
    }

    #[test]
    fn kcl_worker_with_only_ended_shards_has_a_share() {
        assert_eq!(table("......../AA", "a").plannable(), (4, 0));
        assert_eq!(table("......../aa", "a").plannable(), (8, 0));
        assert_eq!(table("AAAAAA/BB", "a").steals('a', 10), ["A", "A"]);
    }

    /// KCL would steal it back.
    #[test]
    fn worker_steals_nothing_if_its_ended_shards_fill_its_share() {
        assert_eq!(table("AAAAAAaa/aaaa", "a").steals('a', 10), [""; 0]);
        assert_eq!(table("AAAAAAaa/aaa", "a").steals('a', 10), ["A"]);
        assert_eq!(table("AAAAaaaa/AAAA", "a").steals('a', 10), [""; 0]);
    }

    #[test]
    fn new_worker_steals_from_the_worker_with_most_leases() {
        assert_eq!(table("AAAABB", "a").steals('a', 10), ["A", "A"]);
        assert_eq!(table("AAAABB", "a").steals('a', 1), ["A"]);
        assert_eq!(table("AAAABB", "a").steals('a', 0), [""; 0]);
        assert_eq!(table("AAAA", "ab").steals('a', 10), ["A", "A"]);
    }

    #[test]
    fn nothing_is_stolen_while_a_shard_is_free() {
        assert_eq!(table("AAAA.", "a").steals('a', 10), [""; 0]);
    }

    #[test]
    fn worker_with_its_share_steals_nothing() {
        assert_eq!(table("AAAaaa", "a").steals('a', 10), [""; 0]);
        assert_eq!(table("AAAaa", "a").steals('a', 10), [""; 0]);
    }

    /// Shares are rounded up. So, without this rule, the last worker that joins would get no shard.
    #[test]
    fn worker_that_needs_two_steals_one_if_all_have_their_share() {
        assert_eq!(table("AAABBBCCC", "a").steals('a', 10), ["A"]);
        assert_eq!(table("AABBCC", "a").steals('a', 10), ["A"]);
        assert_eq!(table("AABBa", "a").steals('a', 10), [""; 0]);
    }

    #[test]
    fn steals_stop_at_max_shards_of_worker() {
        let table = table("AAAAAA", "a");
        let mut me = member('a');
        me.most = Some(1);

        assert_eq!(LeaseTaker(&table.listing()).steals(&me, 10).len(), 1);
    }

    #[test]
    fn lease_of_kcl_worker_with_own_name_is_not_stolen() {
        let mut table = table("aaaa", "ab");
        table.foreign.extend(table.held.keys().cloned());

        assert_eq!(table.steals('a', 10), [""; 0]);
        assert_eq!(table.steals('b', 10), ["a", "a"]);
        assert_eq!(LeaseTaker(&table.listing()).share(), 2, "our name is counted once");
    }

    proptest! {
        #[test]
        fn repeated_steals_end_in_equal_shares(
            owners in "[ABab]{1,24}",
            max in 1..4_usize,
        ) {
            let mut table = table(&owners, "ab");
            for round in 0..100 {
                let me = member(if round % 2 == 0 { 'a' } else { 'b' });
                for (key, owner) in LeaseTaker(&table.listing()).steals(&me, max) {
                    prop_assert_eq!(table.held.get(&key), Some(&Some(owner)));
                    table.foreign.remove(&key);
                    table.owners.insert(key.clone(), me.name.clone());
                    table.held.insert(key, Some(me.name.clone()));
                }
            }
            let share = LeaseTaker(&table.listing()).share();
            let has = |name: &Lessee| {
                table.held.values().filter(|holder| holder.as_ref() == Some(name)).count()
            };
            let largest =
                LeaseTaker(&table.listing()).kcl_workers().values().map(Vec::len).max().unwrap_or(0);
            for member in &table.members {
                let mine = has(&member.name);
                prop_assert!(mine >= share || largest <= share, "{} of {}", mine, share);
                prop_assert!(mine + 1 >= share || largest < share, "{} of {}", mine, share);
            }
        }
    }
}
