//! The events of a load, in memory: 56 bytes for each tenure.

use std::collections::BTreeMap;

use crate::judge::counted::Counted;
use crate::judge::ledger::{Grant, Incarnation};
use crate::load::Load;
use crate::monotonic::Monotonic;
use crate::worker::message::Message;

#[derive(Debug)]
pub(crate) struct LoadLog {
    pub(crate) load: Load,
    tenures: Vec<Vec<Tenure>>,
    /// A cycle is a tenure that its task has ended.
    pub(crate) cycles: u64,
    pub(crate) tallies: BTreeMap<String, u64>,
    pub(crate) wrong_types: Vec<WrongType>,
    pub(crate) spoiled: Vec<Spoiled>,
    samples: Vec<(Monotonic, u64)>,
}

/// One use of a key by one task. Compact, since a run has millions of tenures.
#[derive(Debug, Clone, Copy)]
struct Tenure {
    token: u64,
    incarnation: Incarnation,
    asked: Monotonic,
    /// When the lease was first and last reported held. `None` if the lease ended before the answer
    /// arrived.
    held: Option<(Monotonic, Monotonic)>,
}

/// A claim that failed between `asked` and `at` because its key had another type.
#[derive(Debug, Clone)]
pub(crate) struct WrongType {
    pub(crate) key: usize,
    pub(crate) asked: Monotonic,
    pub(crate) at: Monotonic,
    pub(crate) error: String,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Spoiled {
    pub(crate) key: usize,
    pub(crate) from: Monotonic,
    /// `None` until the key is deleted.
    pub(crate) until: Option<Monotonic>,
    pub(crate) extent: Extent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    All,
    /// Another server refused the list, since the key was held there. The list was deleted at once.
    Some,
}

impl LoadLog {
    pub(crate) fn new(load: Load) -> Self {
        Self {
            load,
            tenures: vec![Vec::new(); load.keys],
            cycles: 0,
            tallies: BTreeMap::new(),
            wrong_types: Vec::new(),
            spoiled: Vec::new(),
            samples: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, incarnation: Incarnation, message: Message) {
        match message {
            Message::Obtained { counter, token, asked, held, .. } => {
                let held = Some((held, held));
                self.add(counter, Tenure { token, incarnation, asked, held });
            }
            Message::TooLate { counter, token, asked } => {
                self.count("lease granted too late".to_owned());
                self.add(counter, Tenure { token, incarnation, asked, held: None });
            }
            Message::Held { counter, token, at } => {
                let mut tenures = self.tenures.get_mut(counter).into_iter().flatten().rev();
                let tenure = tenures
                    .find(|tenure| tenure.token == token && tenure.incarnation == incarnation);
                if let Some(Tenure { held: Some((_, until)), .. }) = tenure {
                    *until = at.max(*until);
                }
            }
            Message::Ended { how, .. } => {
                self.cycles += 1;
                self.count(format!("lease {how}"));
            }
            Message::WrongType { counter, asked, at, error } => {
                self.wrong_types.push(WrongType { key: counter, asked, at, error });
            }
            Message::Counted { what } => self.count(what),
            // A load's tasks increment no counters, hand no leases over, and report no places in a
            // queue.
            Message::Open { .. }
            | Message::Write { .. }
            | Message::Offer { .. }
            | Message::Queued { .. } => (),
        }
    }

    pub(crate) fn count(&mut self, what: String) {
        *self.tallies.entry(what).or_default() += 1;
    }

    fn add(&mut self, key: usize, tenure: Tenure) {
        if let Some(tenures) = self.tenures.get_mut(key) {
            tenures.push(tenure);
        }
    }

    pub(crate) fn grants(&self) -> impl Iterator<Item = Vec<Grant>> {
        let grants = |(counter, tenures): (usize, &Vec<Tenure>)| {
            let grant = |tenure: &Tenure| Grant {
                counter,
                token: tenure.token,
                incarnation: tenure.incarnation,
                asked: tenure.asked,
                by: String::new(),
                held_from: tenure.held.map(|(from, _)| from),
                held_until: tenure.held.map(|(_, until)| until),
                ended: None,
            };
            tenures.iter().map(grant).collect()
        };
        self.tenures.iter().enumerate().map(grants)
    }

    pub(crate) fn spoil(&mut self, key: usize, from: Monotonic) {
        self.spoiled.push(Spoiled { key, from, until: None, extent: Extent::All });
    }

    pub(crate) fn mend(&mut self, key: usize, extent: Extent) {
        for spoiled in &mut self.spoiled {
            if spoiled.key == key && spoiled.until.is_none() {
                (spoiled.until, spoiled.extent) = (Some(Monotonic::now()), extent);
            }
        }
    }

    pub(crate) fn sample(&mut self, at: Monotonic) {
        self.samples.push((at, self.cycles));
    }

    pub(crate) fn samples(&self) -> &[(Monotonic, u64)] {
        &self.samples
    }

    /// The time during which this process ran. While a machine is suspended, its load makes no
    /// cycles.
    pub(crate) fn counted(&self) -> Counted {
        let beats: Vec<_> = self.samples.iter().map(|(at, _)| *at).collect();
        Counted::between_beats(&beats)
    }

    pub(crate) fn cycles_at(&self, moment: Monotonic) -> u64 {
        let place = self.samples.partition_point(|(at, _)| *at <= moment);
        let last = place.checked_sub(1).and_then(|place| self.samples.get(place));
        last.map_or(0, |(_, cycles)| *cycles)
    }
}
