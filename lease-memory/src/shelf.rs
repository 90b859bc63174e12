//! All records, each dropped once it is of no more use.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use lease_core::{Claim, FencingToken, Grant, LeaseKey, Moment, StoreError, StoreErrorKind};

use crate::record::Record;

#[derive(Debug)]
pub(crate) struct Shelf {
    records: HashMap<LeaseKey, Record>,
    /// When to see whether a record can be dropped: one entry for each that may.
    fading: BTreeSet<(Moment, LeaseKey)>,
    /// No token of a dropped record is larger.
    floor: u64,
}

impl Shelf {
    /// An empty shelf, whose tokens are larger than `floor`.
    pub(crate) fn new(floor: u64) -> Self {
        Self { records: HashMap::new(), fading: BTreeSet::new(), floor }
    }

    pub(crate) fn record(&self, key: &LeaseKey) -> Option<&Record> {
        self.records.get(key)
    }

    pub(crate) fn record_mut(&mut self, key: &LeaseKey) -> Option<&mut Record> {
        self.records.get_mut(key)
    }

    /// The record of `key`, made if there is none.
    pub(crate) fn record_or_new(&mut self, key: &LeaseKey, now: Moment) -> &mut Record {
        match self.records.entry(key.clone()) {
            Entry::Occupied(record) => record.into_mut(),
            Entry::Vacant(place) => {
                self.fading.insert((now, key.clone()));
                place.insert(Record::default())
            }
        }
    }

    /// Grants `claim` the next token of its key.
    pub(crate) fn grant(&mut self, claim: &Claim, now: Moment) -> Result<Grant, StoreError> {
        let floor = self.floor;
        let record = self.record_or_new(&claim.key, now);
        let previous = record.token.map_or(floor, FencingToken::get);
        let token = FencingToken::new(previous + 1)
            .map_err(|used_up| StoreError::new(StoreErrorKind::Corrupt, used_up))?;
        record.grant(claim, token, now);
        Ok(claim.granted(token))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&LeaseKey, &Record)> {
        self.records.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Drops what has faded, and remembers that its tokens were given.
    pub(crate) fn sweep(&mut self, now: Moment) {
        while let Some((moment, _)) = self.fading.first()
            && *moment <= now
        {
            let Some((_, key)) = self.fading.pop_first() else {
                return;
            };
            let Entry::Occupied(record) = self.records.entry(key.clone()) else {
                continue;
            };
            match record.get().fades() {
                Some(later) if later > now => {
                    self.fading.insert((later, key));
                }
                Some(_) => {
                    let token = record.remove().token.map_or(0, FencingToken::get);
                    self.floor = self.floor.max(token);
                }
                // It lasts; `delete` makes it fade again.
                None => (),
            }
        }
    }

    /// Lets a record fade that did not before.
    pub(crate) fn let_fade(&mut self, key: &LeaseKey, now: Moment) {
        self.fading.insert((now, key.clone()));
    }
}
