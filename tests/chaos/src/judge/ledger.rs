//! The recorded events of a run, judged after the run.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::monotonic::Monotonic;
use crate::store::Clocks;

#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) began: Monotonic,
    pub(crate) grants: Vec<Grant>,
    pub(crate) waits: Vec<Wait>,
    pub(crate) writes: Vec<Write>,
    pub(crate) faults: Vec<FaultRecord>,
    pub(crate) promotions: Vec<Promotion>,
    pub(crate) outages: Vec<Outage>,
    pub(crate) clocks: Clocks,
    pub(crate) tallies: BTreeMap<String, u64>,
    places: HashMap<(usize, u64, Incarnation), usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Incarnation {
    pub(crate) worker: usize,
    pub(crate) number: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub(crate) counter: usize,
    pub(crate) token: u64,
    pub(crate) incarnation: Incarnation,
    /// A time before the call that obtained the lease.
    pub(crate) asked: Monotonic,
    pub(crate) by: String,
    /// A time after the lease was first reported held.
    pub(crate) held_from: Option<Monotonic>,
    /// A time before the lease was last reported held. A lost lease stays lost, so the lease was
    /// held from `held_from` to `held_until`.
    pub(crate) held_until: Option<Monotonic>,
    pub(crate) ended: Option<(Monotonic, String)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) counter: usize,
    pub(crate) incarnation: Incarnation,
    /// The `asked` time of the grant that ends the wait.
    pub(crate) asked: Monotonic,
    /// A time after the wait got its place.
    pub(crate) queued: Monotonic,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    pub(crate) counter: usize,
    pub(crate) token: u64,
    pub(crate) incarnation: Incarnation,
    /// The value that the worker had read. `None` for the first write under a token, which reads
    /// the value.
    pub(crate) read: Option<u64>,
    pub(crate) sent: Option<Monotonic>,
    pub(crate) at: Monotonic,
    pub(crate) accepted: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct FaultRecord {
    pub(crate) name: &'static str,
    pub(crate) to: String,
    pub(crate) from: Monotonic,
    pub(crate) until: Monotonic,
    pub(crate) kind: Effect,
    /// The counters whose keys may be held twice. `None` for all.
    pub(crate) counters: Option<Vec<usize>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Promotion {
    pub(crate) counter: usize,
    pub(crate) at: Monotonic,
    /// The key's last token on the promoted server. The server lost all grants with larger tokens.
    pub(crate) known: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Outage {
    pub(crate) part: Part,
    pub(crate) from: Monotonic,
    pub(crate) until: Monotonic,
}

/// Workers and servers are numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Process(usize),
    Link(usize, usize),
    Server(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Exclusive,
    MayOverlap { until: Monotonic },
}

impl Ledger {
    pub(crate) fn new(began: Monotonic, clocks: Clocks) -> Self {
        Self {
            began,
            grants: Vec::new(),
            waits: Vec::new(),
            writes: Vec::new(),
            faults: Vec::new(),
            promotions: Vec::new(),
            outages: Vec::new(),
            clocks,
            tallies: BTreeMap::new(),
            places: HashMap::new(),
        }
    }

    pub(crate) fn count(&mut self, what: impl Into<String>) {
        *self.tallies.entry(what.into()).or_default() += 1;
    }

    pub(crate) fn granted(&mut self, grant: Grant) {
        let place = self.grants.len();
        self.places.insert((grant.counter, grant.token, grant.incarnation), place);
        self.grants.push(grant);
    }

    pub(crate) fn held(
        &mut self,
        counter: usize,
        token: u64,
        incarnation: Incarnation,
        at: Monotonic,
    ) {
        if let Some(grant) = self.grant(counter, token, incarnation) {
            grant.held_until = grant.held_until.max(Some(at));
        }
    }

    pub(crate) fn ended(
        &mut self,
        counter: usize,
        token: u64,
        incarnation: Incarnation,
        (at, how): (Monotonic, String),
    ) {
        if let Some(grant) = self.grant(counter, token, incarnation) {
            grant.ended = Some((at, how));
        }
    }

    /// Whether `grant` may have a smaller token than `earlier`. This happens if clocks step, and a
    /// server that had lost the write of `earlier` was promoted between the grants.
    pub(crate) fn explains(&self, earlier: &Grant, grant: &Grant) -> bool {
        let lost = |promotion: &Promotion| {
            promotion.counter == grant.counter
                && promotion.known < earlier.token
                && earlier.asked <= promotion.at
                && grant.held_from.is_some_and(|held| promotion.at <= held)
        };
        self.clocks == Clocks::Step && self.promotions.iter().any(lost)
    }

    fn grant(
        &mut self,
        counter: usize,
        token: u64,
        incarnation: Incarnation,
    ) -> Option<&mut Grant> {
        let place = self.places.get(&(counter, token, incarnation))?;
        self.grants.get_mut(*place)
    }

    pub(crate) fn held_since(&self, moment: Monotonic, counter: usize) -> bool {
        let mut late = self
            .grants
            .iter()
            .rev()
            .take_while(|grant| grant.held_from > Some(moment) || grant.held_from.is_none());
        late.any(|grant| grant.counter == counter && grant.held_from.is_some())
    }

    pub(crate) fn handoffs(&self) -> usize {
        let mut last = BTreeMap::new();
        let mut held: Vec<_> =
            self.grants.iter().filter(|grant| grant.held_from.is_some()).collect();
        held.sort_by_key(|grant| grant.held_from);
        held.iter()
            .filter(|grant| {
                last.insert(grant.counter, grant.incarnation)
                    .is_some_and(|former| former != grant.incarnation)
            })
            .count()
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}, process {}", self.worker, self.number)
    }
}
