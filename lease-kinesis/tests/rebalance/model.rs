//! What the models of the library's rules have in common, and what befalls them: all of them alike.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::fleet::{Agenda, Costs, Fate, Millis, Readers};

/// A rule of the library, re-coded.
pub(crate) trait Model {
    type Row: Row;
    type Deed;

    fn parts(&mut self) -> &mut Parts<Self::Row, Self::Deed>;
    /// Whatever its workers took for their own, is none of theirs.
    fn forget_leases(&mut self);
}

/// A row of the table.
pub(crate) trait Row: Clone + Default {
    /// It is at `SHARD_END`.
    fn has_ended(&self) -> bool;
    fn end(&mut self);
}

/// A table, who reads what of it, and what is to be done.
pub(crate) struct Parts<R, D> {
    pub(crate) leases: Vec<R>,
    /// Of all workers that are there.
    pub(crate) away: BTreeMap<usize, Away>,
    pub(crate) agenda: Agenda<D>,
    pub(crate) readers: Readers,
    pub(crate) costs: Costs,
    pub(crate) random: StdRng,
    /// A worker that stood still goes on.
    wake: fn(usize) -> D,
    /// A worker that is cut off knows that its leases have run out.
    run_out: fn(usize) -> D,
}

/// Until when a worker is away.
#[derive(Debug, Default)]
pub(crate) struct Away {
    pub(crate) paused_until: Millis,
    pub(crate) cut_until: Millis,
}

impl<R: Row, D> Parts<R, D> {
    pub(crate) fn new(
        leases: usize,
        seed: u64,
        wake: fn(usize) -> D,
        run_out: fn(usize) -> D,
    ) -> Self {
        Self {
            leases: vec![R::default(); leases],
            away: BTreeMap::new(),
            agenda: Agenda::new(),
            readers: Readers::none(leases),
            costs: Costs::default(),
            random: StdRng::seed_from_u64(seed),
            wake,
            run_out,
        }
    }

    /// Each lease is read to its end at once; says how many.
    fn end_all(&mut self) -> usize {
        let open = self.leases.iter_mut().enumerate().filter(|(_, row)| !row.has_ended());
        open.map(|(lease, row)| {
            row.end();
            self.readers.close(lease);
        })
        .count()
    }

    /// There are `count` more leases, which can be read.
    fn make(&mut self, count: usize) {
        for lease in self.leases.len()..self.leases.len() + count {
            self.leases.push(R::default());
            self.readers.make(lease);
            self.readers.open(lease);
        }
    }
}

impl<M: Model> Fate for M {
    fn pause(&mut self, now: Millis, worker: usize, length: Millis) {
        let parts = self.parts();
        parts.readers.stop_all(worker);
        parts.agenda.at(now + length, (parts.wake)(worker));
        parts.away.get_mut(&worker).unwrap().paused_until = now + length;
    }

    /// It knows when a lease is too old to be its own; renewed last when it was cut.
    fn cut(&mut self, now: Millis, worker: usize, length: Millis) {
        let parts = self.parts();
        parts.agenda.at(now + FAILOVER, (parts.run_out)(worker));
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
