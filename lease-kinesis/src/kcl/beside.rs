//! Living beside workers of KCL 1 and 2: what is left to ours, and what ours take from them.
//!
//! They know no plan, and hand nothing over; whoever has too little steals, and they expect no less.
//! Their rule is `DynamoDBLeaseTaker`'s: every worker's share is all leases by all workers, rounded
//! up; who has less takes what has expired, or else from the one who has most.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lease_core::{LeaseKey, Lessee};
use tokio::time::Instant;

use super::KclTable;
use crate::plan::{Member, Standing, hash};

/// A worker of ours beside workers of KCL.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) table: KclTable,
    /// The most that it steals at one time.
    pub(crate) most: usize,
    /// Since when each has been free.
    free: BTreeMap<LeaseKey, Instant>,
    /// When it last looked for something to steal.
    looked: Option<Instant>,
}

/// Who has what of the shards that can be read, at one look.
#[derive(Debug)]
pub(crate) struct Look<'a> {
    pub(crate) held: &'a BTreeMap<LeaseKey, Option<Lessee>>,
    /// Those of them that workers of KCL have.
    pub(crate) of_kcl: &'a BTreeSet<LeaseKey>,
    /// Our workers that count.
    pub(crate) members: &'a [Member],
}

impl Beside {
    pub(crate) fn new(table: KclTable, most: usize) -> Self {
        Self { table, most, free: BTreeMap::new(), looked: None }
    }

    /// What our workers plan among themselves.
    pub(crate) fn left_to_us(
        &mut self,
        look: &Look<'_>,
        failover: Duration,
        now: Instant,
    ) -> BTreeMap<LeaseKey, Option<Lessee>> {
        let since = |key: &LeaseKey| self.free.get(key).copied().unwrap_or(now);
        let free = look.free().map(|key| (key.clone(), since(key))).collect();
        self.free = free;
        look.left_to_us(|key| {
            // Nobody else has room for it: KCL, too, takes such a lease whatever its share.
            self.free.get(key).is_some_and(|since| now - *since > failover * LONG)
        })
    }

    /// What `me` is to take from workers of KCL now, and whom from.
    pub(crate) fn takes(
        &mut self,
        look: &Look<'_>,
        me: &Member,
        failover: Duration,
        now: Instant,
    ) -> Vec<LeaseKey> {
        // As seldom as they do: each theft costs what was worked on since the last checkpoint.
        if self.looked.is_some_and(|last| now - last < failover * 2) {
            return Vec::new();
        }
        self.looked = Some(now);
        let stolen = look.stolen(me, self.most).into_iter();
        let steal = stolen.inspect(|(key, owner)| self.table.steal(key, owner));
        steal.map(|(key, _)| key).collect()
    }
}

impl Look<'_> {
    fn free(&self) -> impl Iterator<Item = &LeaseKey> {
        self.held.iter().filter(|(_, holder)| holder.is_none()).map(|(key, _)| key)
    }

    /// The workers of KCL, and what each has. Those that have nothing are not to be seen.
    fn neighbours(&self) -> BTreeMap<&Lessee, Vec<&LeaseKey>> {
        let mut neighbours: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for key in self.of_kcl {
            if let Some(Some(owner)) = self.held.get(key) {
                neighbours.entry(owner).or_default().push(key);
            }
        }
        neighbours
    }

    fn live(&self) -> usize {
        self.members.iter().filter(|member| member.standing == Standing::Live).count()
    }

    /// How many leases are one worker's share.
    fn target(&self) -> usize {
        let workers = self.live() + self.neighbours().len();
        self.held.len().div_ceil(workers.max(1))
    }

    /// What workers of KCL do not have; of what is free, as much as makes up our share, and what
    /// nobody wants.
    pub(crate) fn left_to_us(
        &self,
        is_nobodys: impl Fn(&LeaseKey) -> bool,
    ) -> BTreeMap<LeaseKey, Option<Lessee>> {
        let mut left = self.held.clone();
        left.retain(|key, _| !self.of_kcl.contains(key));
        if self.of_kcl.is_empty() {
            return left;
        }
        let ours = left.values().filter(|holder| holder.is_some()).count();
        let mut room = (self.target() * self.live()).saturating_sub(ours);
        left.retain(|key, holder| {
            if holder.is_some() || is_nobodys(key) {
                return true;
            }
            let fits = room > 0;
            room = room.saturating_sub(1);
            fits
        });
        left
    }

    /// What `me` takes from the living, `most` at the most: nothing as long as something is free.
    pub(crate) fn stolen(&self, me: &Member, most: usize) -> Vec<(LeaseKey, Lessee)> {
        if self.free().next().is_some() {
            return Vec::new();
        }
        let neighbours = self.neighbours();
        let others = neighbours.iter().filter(|(owner, _)| **owner != &me.name);
        // Of two, the first by name.
        let victim =
            others.max_by(|(a, one), (b, other)| one.len().cmp(&other.len()).then(b.cmp(a)));
        let Some((victim, his)) = victim else { return Vec::new() };
        let mine = self.held.values().filter(|holder| holder.as_ref() == Some(&me.name)).count();
        let target = self.target().min(me.most.unwrap_or(usize::MAX));
        let need = target.saturating_sub(mine);
        let spare = his.len().saturating_sub(self.target());
        let count = match need.min(spare) {
            // Otherwise nobody would move when all others have just their share.
            0 if need > 1 && his.len() == self.target() => 1,
            count => count,
        };
        let mut keys = his.clone();
        // Two of ours that look at once do not go for the same.
        keys.sort_by_cached_key(|key| (hash(key.as_str(), me.name.as_str()), *key));
        let stolen = keys.into_iter().take(count.min(most));
        stolen.map(|key| (key.clone(), (*victim).clone())).collect()
    }
}

/// After so many failover times a free lease is taken whatever the share: KCL's `VERY_OLD_LEASE`.
const LONG: u32 = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Who has each shard: `a` and `b` are ours, capitals are KCL's, a dot is nobody.
    struct Table {
        held: BTreeMap<LeaseKey, Option<Lessee>>,
        of_kcl: BTreeSet<LeaseKey>,
        members: Vec<Member>,
    }

    fn table(owners: &str, members: &str) -> Table {
        let (mut held, mut of_kcl) = (BTreeMap::new(), BTreeSet::new());
        for (number, owner) in owners.chars().enumerate() {
            let key: LeaseKey = format!("shop/shards/shard-{number:03}").parse().unwrap();
            if owner.is_ascii_uppercase() {
                of_kcl.insert(key.clone());
            }
            let owner = Some(owner).filter(|owner| *owner != '.');
            held.insert(key, owner.map(|owner| owner.to_string().parse().unwrap()));
        }
        Table { held, of_kcl, members: members.chars().map(member).collect() }
    }

    fn member(name: char) -> Member {
        Member::new(name.to_string().parse().unwrap())
    }

    impl Table {
        fn look(&self) -> Look<'_> {
            Look { held: &self.held, of_kcl: &self.of_kcl, members: &self.members }
        }

        /// How many of the free and of ours are left to us.
        fn left(&self) -> (usize, usize) {
            let left = self.look().left_to_us(|_| false);
            let free = left.values().filter(|holder| holder.is_none()).count();
            (free, left.len() - free)
        }

        fn stolen(&self, me: char, most: usize) -> Vec<String> {
            let stolen = self.look().stolen(&member(me), most);
            stolen.into_iter().map(|(_, owner)| owner.as_str().to_owned()).collect()
        }
    }

    #[test]
    fn without_workers_of_kcl_all_is_ours() {
        assert_eq!(table("aab...", "ab").left(), (3, 3));
    }

    #[test]
    fn of_what_is_free_ours_take_their_share() {
        assert_eq!(table("AA......", "a").left(), (4, 0));
        assert_eq!(table("AA..aa..", "a").left(), (2, 2));
        assert_eq!(table("AAaaaa..", "a").left(), (0, 4));
        assert_eq!(table("AAaaaaaa", "a").left(), (0, 6), "nothing is given up");
    }

    #[test]
    fn what_nobody_wants_is_ours() {
        let table = table("AAaaaa..", "a");

        assert_eq!(table.look().left_to_us(|_| true).len(), 6);
    }

    #[test]
    fn a_new_worker_of_ours_takes_from_who_has_most() {
        assert_eq!(table("AAAABB", "a").stolen('a', 10), ["A", "A"]);
        assert_eq!(table("AAAABB", "a").stolen('a', 1), ["A"]);
        assert_eq!(table("AAAABB", "a").stolen('a', 0), [""; 0]);
        assert_eq!(table("AAAA", "ab").stolen('a', 10), ["A", "A"]);
    }

    #[test]
    fn nobody_is_robbed_while_something_is_free() {
        assert_eq!(table("AAAA.", "a").stolen('a', 10), [""; 0]);
    }

    #[test]
    fn who_has_his_share_takes_nothing_and_loses_nothing() {
        assert_eq!(table("AAAaaa", "a").stolen('a', 10), [""; 0]);
        assert_eq!(table("AAAaa", "a").stolen('a', 10), [""; 0]);
    }

    /// Otherwise the last to come would have nothing: all others have the share, rounded up.
    #[test]
    fn where_all_have_their_share_who_needs_more_than_one_takes_one() {
        assert_eq!(table("AAABBBCCC", "a").stolen('a', 10), ["A"]);
        assert_eq!(table("AABBCC", "a").stolen('a', 10), ["A"]);
        assert_eq!(table("AABBa", "a").stolen('a', 10), [""; 0]);
    }

    #[test]
    fn a_worker_takes_no_more_than_it_may() {
        let table = table("AAAAAA", "a");
        let mut me = member('a');
        me.most = Some(1);

        assert_eq!(table.look().stolen(&me, 10).len(), 1);
    }

    /// Of a worker of KCL that has its name.
    #[test]
    fn nobody_steals_what_is_under_his_own_name() {
        let mut table = table("aaaa", "ab");
        table.of_kcl.extend(table.held.keys().cloned());

        assert_eq!(table.stolen('a', 10), [""; 0]);
        assert_eq!(table.stolen('b', 10), ["a", "a"]);
    }

    proptest! {
        /// With everybody at his turn again and again, as KCL's own workers do.
        #[test]
        fn in_the_end_none_of_ours_has_less_than_his_share_while_a_neighbour_has_more(
            owners in "[ABab]{1,24}",
            most in 1..4_usize,
        ) {
            let mut table = table(&owners, "ab");
            for round in 0..100 {
                let me = member(if round % 2 == 0 { 'a' } else { 'b' });
                for (key, owner) in table.look().stolen(&me, most) {
                    prop_assert_eq!(table.held.get(&key), Some(&Some(owner)));
                    table.of_kcl.remove(&key);
                    table.held.insert(key, Some(me.name.clone()));
                }
            }
            let target = table.look().target();
            let has = |name: &Lessee| {
                table.held.values().filter(|holder| holder.as_ref() == Some(name)).count()
            };
            let largest = table.look().neighbours().values().map(Vec::len).max().unwrap_or(0);
            for member in &table.members {
                let mine = has(&member.name);
                prop_assert!(mine >= target || largest <= target, "{} of {}", mine, target);
                prop_assert!(mine + 1 >= target || largest < target, "{} of {}", mine, target);
            }
        }
    }
}
