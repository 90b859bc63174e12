//! What happened, as it happened: written during a run, judged after it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::setup::Clocks;
use crate::stamp::Stamp;

/// One run.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) began: Stamp,
    pub(crate) grants: Vec<Grant>,
    pub(crate) writes: Vec<Write>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) promotions: Vec<Promotion>,
    /// Whether the wall clocks of servers are stepped.
    pub(crate) clocks: Clocks,
    /// How often workers were started, crashed, failed in a call, and so on.
    pub(crate) tallies: BTreeMap<String, u64>,
    places: HashMap<(usize, u64, Life), usize>,
}

/// A worker process, from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Life {
    pub(crate) worker: usize,
    pub(crate) number: usize,
}

/// A lease, as the worker tells that has it.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub(crate) counter: usize,
    pub(crate) token: u64,
    pub(crate) life: Life,
    /// Before the call that obtained it.
    pub(crate) asked: Stamp,
    /// The call that did.
    pub(crate) by: String,
    /// After the lease said for the first time that it was held.
    pub(crate) held_from: Option<Stamp>,
    /// Before it said so for the last time. It says so until it says so no more, so it was held
    /// from the one to the other for certain.
    pub(crate) held_until: Option<Stamp>,
    pub(crate) ended: Option<(Stamp, String)>,
}

/// What a worker wanted to write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    pub(crate) counter: usize,
    pub(crate) token: u64,
    pub(crate) life: Life,
    /// What it had read; `None` for the first write under a token, which shows the value.
    pub(crate) read: Option<u64>,
    pub(crate) sent: Option<Stamp>,
    pub(crate) at: Stamp,
    pub(crate) accepted: bool,
}

/// What the nemesis did.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// What it was done to.
    pub(crate) to: String,
    pub(crate) from: Stamp,
    pub(crate) until: Stamp,
    pub(crate) kind: Kind,
    /// The counters whose keys may be held twice; `None`: all.
    pub(crate) counters: Option<Vec<usize>>,
}

/// What a promoted server knew of a counter's key when the judge reached it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promotion {
    pub(crate) counter: usize,
    pub(crate) at: Stamp,
    /// The key's last token there: writes of larger ones were acknowledged and lost.
    pub(crate) known: u64,
}

/// What a fault may lead to, by the stores' tables of what happens when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One holder, as ever.
    Tame,
    /// A key may be held twice until `until`.
    Wild { until: Stamp },
}

impl Ledger {
    pub(crate) fn new(began: Stamp, clocks: Clocks) -> Self {
        Self {
            began,
            grants: Vec::new(),
            writes: Vec::new(),
            faults: Vec::new(),
            promotions: Vec::new(),
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
        self.places.insert((grant.counter, grant.token, grant.life), place);
        self.grants.push(grant);
    }

    pub(crate) fn held(&mut self, counter: usize, token: u64, life: Life, at: Stamp) {
        if let Some(grant) = self.grant(counter, token, life) {
            grant.held_until = grant.held_until.max(Some(at));
        }
    }

    pub(crate) fn ended(
        &mut self,
        counter: usize,
        token: u64,
        life: Life,
        (at, how): (Stamp, String),
    ) {
        if let Some(grant) = self.grant(counter, token, life) {
            grant.ended = Some((at, how));
        }
    }

    /// Whether `grant` may have a smaller token than `earlier`: clocks step, and a server was
    /// promoted between the two that had lost the write of `earlier`.
    pub(crate) fn explains(&self, earlier: &Grant, grant: &Grant) -> bool {
        let lost = |promotion: &Promotion| {
            promotion.counter == grant.counter
                && promotion.known < earlier.token
                && earlier.asked <= promotion.at
                && grant.held_from.is_some_and(|held| promotion.at <= held)
        };
        self.clocks == Clocks::Step && self.promotions.iter().any(lost)
    }

    fn grant(&mut self, counter: usize, token: u64, life: Life) -> Option<&mut Grant> {
        let place = self.places.get(&(counter, token, life))?;
        self.grants.get_mut(*place)
    }

    /// Whether somebody obtained `counter`'s key after `moment`.
    pub(crate) fn held_since(&self, moment: Stamp, counter: usize) -> bool {
        let mut late = self
            .grants
            .iter()
            .rev()
            .take_while(|grant| grant.held_from > Some(moment) || grant.held_from.is_none());
        late.any(|grant| grant.counter == counter && grant.held_from.is_some())
    }

    /// How often a key went from one process to another.
    pub(crate) fn handoffs(&self) -> usize {
        let mut last = BTreeMap::new();
        let mut held: Vec<_> =
            self.grants.iter().filter(|grant| grant.held_from.is_some()).collect();
        held.sort_by_key(|grant| grant.held_from);
        held.iter()
            .filter(|grant| {
                last.insert(grant.counter, grant.life).is_some_and(|former| former != grant.life)
            })
            .count()
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}, life {}", self.worker, self.number)
    }
}
