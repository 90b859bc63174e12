//! Waiting in turn: a freed key is granted to the first waiter that still renews its place.

use async_trait::async_trait;
use lease_core::store::{Claim, Enqueued, Grant, InTurn, Moment, Notice, Notices, Obtained, Place};
use lease_core::{Attributes, LeaseKey, StoreError};

use crate::record::Decision;
use crate::records::Records;
use crate::store::{MemoryStore, Shared, refuse_child};

#[async_trait]
impl InTurn for MemoryStore {
    async fn listen(&self, claim: &Claim) -> Result<Notices, StoreError> {
        Ok(self.shared.listeners.listen(claim.nonce))
    }

    async fn enqueue(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        self.place(claim, Joining::Allowed)
    }

    async fn renew(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        self.place(claim, Joining::Refused)
    }

    async fn leave(&self, claim: &Claim) -> Result<(), StoreError> {
        let (mut records, now) = self.lock();
        records.queues.remove(claim);
        let token = records.get(&claim.key).and_then(|record| record.token);
        let Some(token) = token else { return Ok(()) };
        let grant = claim.granted(token);
        let is_freed =
            records.get_mut(&claim.key).is_some_and(|record| record.release(&grant, now));
        let is_granted = self.shared.settle(&mut records, &claim.key, now)?;
        if is_freed && !is_granted {
            self.shared.watches.freed(&claim.key);
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joining {
    Allowed,
    Refused,
}

impl MemoryStore {
    /// Renews the place of `claim`. If the claim has no place, adds a place, unless `joining` refuses.
    fn place(&self, claim: &Claim, joining: Joining) -> Result<Enqueued, StoreError> {
        refuse_child(claim)?;
        let (mut records, now) = self.lock();
        let has_place = records.queues.renew(claim, now);
        if !has_place && records.get(&claim.key).is_some_and(|record| record.has_ended(claim, now))
        {
            return Ok(Enqueued::Gone);
        }
        self.shared.settle(&mut records, &claim.key, now)?;
        let record = records.get_or_create(&claim.key, now);
        let expires_in = match record.decide(claim, now) {
            Decision::AlreadyGranted(request, token) => {
                let grant = claim.granted_to(Some(request), token);
                return Ok(Enqueued::Granted(grant, record.attributes.clone()));
            }
            Decision::Free if joining == Joining::Allowed => {
                let (grant, attributes) = granted(records.grant(claim, now)?);
                self.shared.watches.taken(&claim.key);
                return Ok(
                    grant.map_or(Enqueued::Gone, |grant| Enqueued::Granted(grant, attributes))
                );
            }
            Decision::Free => None,
            // A session holds the key, so the waiter must race, and check whether the session has ended.
            Decision::Held(holder) if holder.parent.is_some() => {
                records.queues.remove(claim);
                return Ok(Enqueued::NoQueue);
            }
            Decision::Held(holder) => holder.expires_in,
        };
        if records.queues.ahead(claim).is_none() {
            if joining == Joining::Refused {
                return Ok(Enqueued::Gone);
            }
            records.queues.push(claim, now);
        }
        Ok(Enqueued::Queued(Place::new(records.queues.ahead(claim), expires_in)))
    }
}

impl Shared {
    /// Grants a free key to the first claim whose place has not expired. Returns whether a claim was
    /// granted.
    pub(crate) fn settle(
        &self,
        records: &mut Records,
        key: &LeaseKey,
        now: Moment,
    ) -> Result<bool, StoreError> {
        if records.queues.is_empty() {
            return Ok(false);
        }
        records.queues.remove_dead(key, &self.listeners, now);
        let Some(claim) = records.next_in_turn(key, now) else { return Ok(false) };
        records.queues.remove(&claim);
        if let (Some(grant), attributes) = granted(records.grant(&claim, now)?) {
            self.listeners.notify(claim.nonce, Notice::Granted(grant, attributes));
        }
        Ok(true)
    }
}

fn granted(obtained: Obtained) -> (Option<Grant>, Attributes) {
    match obtained {
        Obtained::Granted(grant, attributes) => (Some(grant), attributes),
        Obtained::Held(_) => (None, Attributes::new()),
    }
}
