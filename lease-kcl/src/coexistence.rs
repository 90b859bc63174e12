//! Shares a table with workers of KCL 1 and 2.

use std::collections::BTreeMap;
use std::time::Duration;

use lease_core::{LeaseKey, Lessee};
use lease_kinesis::extension::{Coexistence, SharedTable};
use lease_kinesis::{InitialPosition, Member};
use tokio::time::Instant;

use crate::lease_taker::LeaseTaker;
use crate::neighbours::Neighbours;
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
    neighbours: Neighbours,
    looked: Option<Instant>,
}

impl KclCoexistence {
    /// Shares `table` with workers of KCL 1 and 2.
    pub fn new(table: KclTable) -> Self {
        let (free, neighbours) = (BTreeMap::new(), Neighbours::default());
        Self { table, max_steals: 1, free, neighbours, looked: None }
    }

    /// Steals at most `shards` within twice the failover time. With 0, the worker takes only free shards.
    /// Defaults to 1, KCL's default for `maxLeasesToStealAtOneTime`.
    #[must_use]
    pub fn with_max_steals(mut self, shards: usize) -> Self {
        self.max_steals = shards;
        self
    }

    /// Notes for how long each shard has been free, and which KCL workers took shards.
    fn look(&mut self, taker: &LeaseTaker<'_>, now: Instant) {
        let since = |key: &LeaseKey| self.free.get(key).copied().unwrap_or(now);
        // No other worker may obtain a reserved shard.
        let free = taker.free().filter(|key| self.table.reserved_for(key).is_none());
        self.free = free.map(|key| (key.clone(), since(key))).collect();
        self.neighbours.look(taker.rows_of_kcl_workers(), taker.share_by_rows(), now);
        let patience = self.patience();
        let old = self.free.values().filter(|since| now - **since > patience);
        if let Some(since) = old.max() {
            self.neighbours.have_not_taken_since(*since);
        }
    }

    /// After this time, each KCL worker that lacks a shard has taken a free one.
    ///
    /// Proof: a KCL worker scans the table every two failover times and 50 ms. Its first scan after the last renewal
    /// shows the last counter, and its second scan shows the same counter. So after at most four failover times and
    /// 100 ms, it knows that the lease has expired. Our workers see a lease as free one failover time after its last
    /// renewal. The third of a failover time is for the 100 ms, the scan and the write.
    fn patience(&self) -> Duration {
        let failover = self.table.failover_time();
        failover * 3 + failover / 3
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
        self.look(&taker, now);
        let patience = self.patience();
        let is_very_old =
            |key: &LeaseKey| self.free.get(key).is_some_and(|since| now - *since > patience);
        let reserved_for = |key: &LeaseKey| self.table.reserved_for(key);
        taker.plannable(is_very_old, reserved_for, self.neighbours.that_do_not_take())
    }

    fn take(&mut self, table: &SharedTable<'_>, me: &Member, now: Instant) -> Vec<LeaseKey> {
        let assigned = table.held.iter().filter(|(key, holder)| {
            let may_be_mine = holder.is_none() || table.foreign.contains(*key);
            may_be_mine && self.table.is_assigned(key, &me.name, holder.is_none())
        });
        let mine = |(key, holder): &(&LeaseKey, &Option<Lessee>)| {
            holder.as_ref() == Some(&me.name) && !table.foreign.contains(*key)
        };
        let most =
            me.most.unwrap_or(usize::MAX).saturating_sub(table.held.iter().filter(mine).count());
        let mut taken: Vec<_> = assigned.map(|(key, _)| key.clone()).take(most).collect();
        // Each steal repeats the records after the last checkpoint, so steals are as rare as in KCL.
        if self.looked.is_some_and(|last| now - last < self.table.failover_time() * 2) {
            return taken;
        }
        self.looked = Some(now);
        let stolen = LeaseTaker(table).steals(me, self.max_steals).into_iter();
        let stolen = stolen.inspect(|(key, owner)| self.table.steal(key, owner));
        taken.extend(stolen.map(|(key, _)| key));
        taken
    }
}
