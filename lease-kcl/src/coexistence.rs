//! Shares a table with workers of KCL 1 and 2.
//!
//! KCL's rule is in `DynamoDBLeaseTaker`. A worker's share is the number of leases divided by the number of
//! workers, rounded up. A worker below its share takes expired leases. If no lease has expired, the worker
//! steals from the worker with the most leases.

use std::collections::BTreeMap;
use std::time::Duration;

use lease_core::{LeaseKey, Lessee};
use lease_kinesis::extension::{Coexistence, SharedTable, rendezvous_hash};
use lease_kinesis::{InitialPosition, Member, MemberState};
use tokio::time::Instant;

use crate::store::KclTable;

/// Shares a [`KclTable`] with workers of KCL 1 and 2.
///
/// As KCL does, our worker steals leases from KCL workers until our worker has its own share. The records
/// after the last checkpoint are then processed again.
///
/// Pass this value to [`WorkerBuilder::with_coexistence`](lease_kinesis::WorkerBuilder::with_coexistence) of
/// a worker that uses the same table. The ttl must not be longer than the table's [failover
/// time](crate::KclTableBuilder::with_failover_time).
#[derive(Debug)]
pub struct KclCoexistence {
    table: KclTable,
    max_steals: usize,
    /// The time since which each shard has been free.
    free: BTreeMap<LeaseKey, Instant>,
    looked: Option<Instant>,
}

impl KclCoexistence {
    /// Shares `table` with workers of KCL 1 and 2.
    pub fn new(table: KclTable) -> Self {
        Self { table, max_steals: 1, free: BTreeMap::new(), looked: None }
    }

    /// Steals at most `shards` within twice the failover time. With 0, the worker takes only free shards.
    /// Defaults to 1, KCL's default for `maxLeasesToStealAtOneTime`.
    #[must_use]
    pub fn with_max_steals(mut self, shards: usize) -> Self {
        self.max_steals = shards;
        self
    }
}

impl Coexistence for KclCoexistence {
    fn max_ttl(&self) -> Duration {
        self.table.failover_time()
    }

    fn initial_position(&self) -> Option<InitialPosition> {
        Some(self.table.initial_position())
    }

    fn plannable(
        &mut self,
        table: &SharedTable<'_>,
        now: Instant,
    ) -> BTreeMap<LeaseKey, Option<Lessee>> {
        let taker = LeaseTaker(table);
        let since = |key: &LeaseKey| self.free.get(key).copied().unwrap_or(now);
        self.free = taker.free().map(|key| (key.clone(), since(key))).collect();
        let very_old = self.table.failover_time() * VERY_OLD;
        // KCL workers, too, take a lease that has been free for this time, even beyond their share.
        taker.plannable(|key| self.free.get(key).is_some_and(|since| now - *since > very_old))
    }

    fn take(&mut self, table: &SharedTable<'_>, me: &Member, now: Instant) -> Vec<LeaseKey> {
        // Each steal repeats the records after the last checkpoint, so steals are as rare as in KCL.
        if self.looked.is_some_and(|last| now - last < self.table.failover_time() * 2) {
            return Vec::new();
        }
        self.looked = Some(now);
        let stolen = LeaseTaker(table).steals(me, self.max_steals).into_iter();
        let stolen = stolen.inspect(|(key, owner)| self.table.steal(key, owner));
        stolen.map(|(key, _)| key).collect()
    }
}

/// Applies the rule of KCL's `DynamoDBLeaseTaker` to one listing.
struct LeaseTaker<'a>(&'a SharedTable<'a>);

impl LeaseTaker<'_> {
    fn free(&self) -> impl Iterator<Item = &LeaseKey> {
        self.0.held.iter().filter(|(_, holder)| holder.is_none()).map(|(key, _)| key)
    }

    /// The table does not show a KCL worker without a lease.
    fn kcl_workers(&self) -> BTreeMap<&Lessee, Vec<&LeaseKey>> {
        let mut workers: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for key in self.0.foreign {
            if let Some(Some(owner)) = self.0.held.get(key) {
                workers.entry(owner).or_default().push(key);
            }
        }
        workers
    }

    fn live_members(&self) -> usize {
        self.0.members.iter().filter(|member| member.state == MemberState::Live).count()
    }

    fn share(&self) -> usize {
        let workers = self.live_members() + self.kcl_workers().len();
        self.0.held.len().div_ceil(workers.max(1))
    }

    /// Returns our workers' shards, and free shards up to our workers' share. Also returns the shards that
    /// have been free for very long.
    fn plannable(
        &self,
        is_very_old: impl Fn(&LeaseKey) -> bool,
    ) -> BTreeMap<LeaseKey, Option<Lessee>> {
        let mut plannable = self.0.held.clone();
        plannable.retain(|key, _| !self.0.foreign.contains(key));
        if self.0.foreign.is_empty() {
            return plannable;
        }
        let ours = plannable.values().filter(|holder| holder.is_some()).count();
        let mut room = (self.share() * self.live_members()).saturating_sub(ours);
        plannable.retain(|key, holder| {
            if holder.is_some() || is_very_old(key) {
                return true;
            }
            let fits = room > 0;
            room = room.saturating_sub(1);
            fits
        });
        plannable
    }

    /// Returns at most `max` shards, and none while a shard is free.
    fn steals(&self, me: &Member, max: usize) -> Vec<(LeaseKey, Lessee)> {
        if self.free().next().is_some() {
            return Vec::new();
        }
        let workers = self.kcl_workers();
        let others = workers.iter().filter(|(owner, _)| **owner != &me.name);
        // If two workers have the same number of leases, the victim is the worker whose name sorts first.
        let victim =
            others.max_by(|(a, one), (b, other)| one.len().cmp(&other.len()).then(b.cmp(a)));
        let Some((victim, leases)) = victim else { return Vec::new() };
        let mine = self.0.held.values().filter(|holder| holder.as_ref() == Some(&me.name)).count();
        let share = self.share();
        let need = share.min(me.most.unwrap_or(usize::MAX)).saturating_sub(mine);
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

/// KCL's `VERY_OLD_LEASE`: a number of failover times.
const VERY_OLD: u32 = 3;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// `a` and `b` are our workers, capitals are KCL workers, a dot means free.
    struct Table {
        held: BTreeMap<LeaseKey, Option<Lessee>>,
        foreign: BTreeSet<LeaseKey>,
        members: Vec<Member>,
    }

    fn table(owners: &str, members: &str) -> Table {
        let (mut held, mut foreign) = (BTreeMap::new(), BTreeSet::new());
        for (number, owner) in owners.chars().enumerate() {
            let key: LeaseKey = format!("shop/shards/shard-{number:03}").parse().unwrap();
            if owner.is_ascii_uppercase() {
                foreign.insert(key.clone());
            }
            let owner = Some(owner).filter(|owner| *owner != '.');
            held.insert(key, owner.map(|owner| owner.to_string().parse().unwrap()));
        }
        Table { held, foreign, members: members.chars().map(member).collect() }
    }

    fn member(name: char) -> Member {
        Member::new(name.to_string().parse().unwrap())
    }

    impl Table {
        fn listing(&self) -> SharedTable<'_> {
            SharedTable { held: &self.held, foreign: &self.foreign, members: &self.members }
        }

        fn plannable(&self) -> (usize, usize) {
            let plannable = LeaseTaker(&self.listing()).plannable(|_| false);
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

        assert_eq!(LeaseTaker(&table.listing()).plannable(|_| true).len(), 6);
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
