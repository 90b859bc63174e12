//! The common parts of the models of KCL's rules.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::fleet::{Agenda, Costs, Disturbances, Millis, Readers};

pub(crate) trait Model {
    type Row: Row;
    type Task;

    fn parts(&mut self) -> &mut Parts<Self::Row, Self::Task>;
    fn forget_leases(&mut self);
}

pub(crate) trait Row: Clone + Default {
    fn has_ended(&self) -> bool;
    fn end(&mut self);
}

pub(crate) struct Parts<R, D> {
    pub(crate) leases: Vec<R>,
    pub(crate) away: BTreeMap<usize, Outage>,
    pub(crate) agenda: Agenda<D>,
    pub(crate) readers: Readers,
    pub(crate) costs: Costs,
    pub(crate) random: StdRng,
    wake: fn(usize) -> D,
    /// Creates the task in which a disconnected worker notices that its leases have expired.
    expire: fn(usize) -> D,
}

#[derive(Debug, Default)]
pub(crate) struct Outage {
    pub(crate) paused_until: Millis,
    pub(crate) cut_until: Millis,
}

impl<R: Row, D> Parts<R, D> {
    pub(crate) fn new(
        leases: usize,
        seed: u64,
        wake: fn(usize) -> D,
        expire: fn(usize) -> D,
    ) -> Self {
        Self {
            leases: vec![R::default(); leases],
            away: BTreeMap::new(),
            agenda: Agenda::new(),
            readers: Readers::none(leases),
            costs: Costs::default(),
            random: StdRng::seed_from_u64(seed),
            wake,
            expire,
        }
    }

    fn end_all(&mut self) -> usize {
        let open = self.leases.iter_mut().enumerate().filter(|(_, row)| !row.has_ended());
        open.map(|(lease, row)| {
            row.end();
            self.readers.close(lease);
        })
        .count()
    }

    fn make(&mut self, count: usize) {
        for lease in self.leases.len()..self.leases.len() + count {
            self.leases.push(R::default());
            self.readers.make(lease);
            self.readers.open(lease);
        }
    }
}

impl<M: Model> Disturbances for M {
    fn pause(&mut self, now: Millis, worker: usize, length: Millis) {
        let parts = self.parts();
        parts.readers.stop_all(worker);
        parts.agenda.at(now + length, (parts.wake)(worker));
        parts.away.get_mut(&worker).unwrap().paused_until = now + length;
    }

    /// The worker renewed its leases just before the outage, and notices the outage only when they expire.
    fn cut(&mut self, now: Millis, worker: usize, length: Millis) {
        let parts = self.parts();
        parts.agenda.at(now + FAILOVER, (parts.expire)(worker));
        parts.away.get_mut(&worker).unwrap().cut_until = now + length;
    }

    fn split_all(&mut self, _: Millis) {
        let ended = self.parts().end_all();
        self.forget_leases();
        self.parts().make(2 * ended);
    }

    fn merge_all(&mut self, _: Millis) {
        let ended = self.parts().end_all();
        self.forget_leases();
        self.parts().make(ended / 2);
    }
}

/// `failoverTimeMillis`
pub(crate) const FAILOVER: Millis = 10_000;
