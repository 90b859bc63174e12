//! Keeps all records, and removes each record that the store no longer needs.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use lease_core::store::{Claim, Moment, Obtained};
use lease_core::{FencingToken, LeaseKey, StoreError};

use crate::queues::Queues;
use crate::record::{Decision, Record};

#[derive(Debug)]
pub(crate) struct Records {
    by_key: HashMap<LeaseKey, Record>,
    /// When to check whether a record can be removed. Each record has one time, unless it is lasting.
    checks: BTreeSet<(Moment, LeaseKey)>,
    floor: u64,
    pub(crate) queues: Queues,
}

impl Records {
    pub(crate) fn new(floor: u64) -> Self {
        Self { by_key: HashMap::new(), checks: BTreeSet::new(), floor, queues: Queues::default() }
    }

    pub(crate) fn get(&self, key: &LeaseKey) -> Option<&Record> {
        self.by_key.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &LeaseKey) -> Option<&mut Record> {
        self.by_key.get_mut(key)
    }

    pub(crate) fn get_or_create(&mut self, key: &LeaseKey, now: Moment) -> &mut Record {
        match self.by_key.entry(key.clone()) {
            Entry::Occupied(record) => record.into_mut(),
            Entry::Vacant(entry) => {
                self.checks.insert((now, key.clone()));
                entry.insert(Record::default())
            }
        }
    }

    pub(crate) fn grant(&mut self, claim: &Claim, now: Moment) -> Result<Obtained, StoreError> {
        let floor = self.floor;
        self.get_or_create(&claim.key, now).grant_above(floor, claim, now)
    }

    /// The first claim in the queue that may be granted the key now. A key that is reserved for one lessee
    /// is free for this lessee only.
    pub(crate) fn next_in_turn(&self, key: &LeaseKey, now: Moment) -> Option<Claim> {
        let record = self.get(key);
        let is_free = |claim: &&Claim| {
            record.is_none_or(|record| matches!(record.decide(claim, now), Decision::Free))
        };
        self.queues.claims(key).find(is_free).cloned()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&LeaseKey, &Record)> {
        self.by_key.iter()
    }

    /// A key without a record gets a token that is larger than this floor.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn remove_outdated(&mut self, now: Moment) {
        while let Some((moment, _)) = self.checks.first()
            && *moment <= now
        {
            let Some((_, key)) = self.checks.pop_first() else {
                return;
            };
            let Entry::Occupied(record) = self.by_key.entry(key.clone()) else {
                continue;
            };
            match record.get().removable_at(now) {
                Some(later) if later > now => {
                    self.checks.insert((later, key));
                }
                Some(_) => {
                    let token = record.remove().token.map_or(0, FencingToken::get);
                    self.floor = self.floor.max(token);
                }
                // A lasting record needs no check. If it is deleted, `check_for_removal` adds a check.
                None => (),
            }
        }
    }

    /// Adds a record that was lasting before to the checks for removal.
    pub(crate) fn check_for_removal(&mut self, key: &LeaseKey, now: Moment) {
        self.checks.insert((now, key.clone()));
    }
}
