//! What befalls the models of the library's rules: all of them alike.

use crate::fleet::{Agenda, Fate, Millis, Readers};

/// A rule of the library, re-coded.
pub(crate) trait Model {
    type Deed;

    /// A worker that stood still goes on.
    fn wake(worker: usize) -> Self::Deed;
    /// A worker that is cut off knows that its leases have run out.
    fn run_out(worker: usize) -> Self::Deed;
    fn agenda(&mut self) -> &mut Agenda<Self::Deed>;
    fn readers(&mut self) -> &mut Readers;
    fn away(&mut self, worker: usize) -> &mut Away;
    /// Each lease is read to its end at once; says how many.
    fn end_all(&mut self) -> usize;
    /// There are `count` more leases, which can be read.
    fn make(&mut self, count: usize);
}

/// Until when a worker is away.
#[derive(Debug, Default)]
pub(crate) struct Away {
    pub(crate) paused_until: Millis,
    pub(crate) cut_until: Millis,
}

impl<M: Model> Fate for M {
    fn pause(&mut self, now: Millis, worker: usize, length: Millis) {
        self.readers().stop_all(worker);
        self.agenda().at(now + length, Self::wake(worker));
        self.away(worker).paused_until = now + length;
    }

    /// It knows when a lease is too old to be its own; renewed last when it was cut.
    fn cut(&mut self, now: Millis, worker: usize, length: Millis) {
        self.agenda().at(now + FAILOVER, Self::run_out(worker));
        self.away(worker).cut_until = now + length;
    }

    fn split_all(&mut self, _: Millis) {
        let ended = self.end_all();
        self.make(2 * ended);
    }

    fn merge_all(&mut self, _: Millis) {
        let ended = self.end_all();
        self.make(ended / 2);
    }
}

/// `failoverTimeMillis`
pub(crate) const FAILOVER: Millis = 10_000;
