//! Waiting in turn: the file keeps a queue of claims for each key, and a release grants the key to the first of
//! them, in the same transaction.

use async_trait::async_trait;
use lease_core::store::{Claim, Enqueued, InTurn, Nonce, Notices, Place, RequestNumber};
use lease_core::{LeaseKey, Lessee, StoreError};
use rusqlite::named_params;

use crate::database::Database;
use crate::error::Fault;
use crate::requests::{ClaimRequest, micros, whole};
use crate::row::{Row, nonce_text, read_nonce};
use crate::store::{SqliteStore, claim_request, refuse_child};
use crate::threads::queue::Urgency;

#[async_trait]
impl InTurn for SqliteStore {
    /// The reading thread looks for grants and reservations while a claim listens.
    async fn listen(&self, claim: &Claim) -> Result<Notices, StoreError> {
        let (claim, watches) = (claim.clone(), self.shared.watches.clone());
        // The thread registers the claim, so that it notices that it has to poll.
        self.read_by(move |database| Ok(watches.listen(database, &claim))).await
    }

    async fn enqueue(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        self.place(claim, Joining::Allowed).await
    }

    async fn renew(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        self.place(claim, Joining::Refused).await
    }

    async fn leave(&self, claim: &Claim) -> Result<(), StoreError> {
        let (key, nonce) = (claim.key.clone(), claim.nonce);
        self.write(Urgency::Urgent, move |database| database.leave(&key, nonce)).await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joining {
    Allowed,
    Refused,
}

/// A claim in the queue of a key.
struct Waiter {
    nonce: Nonce,
    request: RequestNumber,
    lessee: Lessee,
    ttl: i64,
    attributes: String,
}

impl SqliteStore {
    async fn place(&self, claim: &Claim, joining: Joining) -> Result<Enqueued, StoreError> {
        refuse_child(claim)?;
        let request = claim_request(claim)?;
        self.write(Urgency::Normal, move |database| database.place(&request, joining)).await
    }
}

impl Database {
    /// Grants a free key to the first claim in its queue whose place has not expired.
    pub(crate) fn hand_on(&self, key: &LeaseKey) -> Result<(), Fault> {
        let waiters = self.waiters(key)?;
        if waiters.is_empty() {
            return Ok(());
        }
        let row = self.seen_row(key)?;
        let is_next =
            |waiter: &&Waiter| row.as_ref().is_none_or(|row| row.is_free_for(&waiter.lessee));
        // The row may refuse a claim that was granted before. The next claim is then the first.
        for waiter in waiters.iter().filter(is_next) {
            let params = named_params! {
                ":key": key.as_str(),
                ":nonce": nonce_text(waiter.nonce),
                ":request": whole(waiter.request.get()),
                ":lessee": waiter.lessee.as_str(),
                ":ttl": waiter.ttl,
                ":attributes": waiter.attributes,
            };
            let granted = self.rows(&self.settings.statements.obtain, params, |_row| Ok(()))?;
            if !granted.is_empty() {
                return self.dequeue(key, waiter.nonce);
            }
        }
        Ok(())
    }

    fn place(&self, request: &ClaimRequest, joining: Joining) -> Result<Enqueued, Fault> {
        let claim = &request.claim;
        let mut has_place = self.renew(claim)?;
        let row = self.seen_row(&claim.key)?;
        if let Some(row) = &row {
            if row.held().is_some_and(|grant| grant.parent.is_some()) {
                // The waiter must race, and check whether the session has ended.
                self.dequeue(&claim.key, claim.nonce)?;
                return Ok(Enqueued::NoQueue);
            }
            if row.has_ended(claim.nonce) {
                self.dequeue(&claim.key, claim.nonce)?;
                return Ok(Enqueued::Gone);
            }
        }
        let is_granted = row.as_ref().is_some_and(|row| row.granted_to(claim).is_some());
        if !has_place && !is_granted && joining == Joining::Allowed {
            self.enqueue(request)?;
            has_place = true;
        }
        if row.as_ref().is_none_or(|row| row.held().is_none()) {
            self.hand_on(&claim.key)?;
        }
        let row = self.row(&claim.key)?;
        if let Some(row) = &row
            && let Some(grant) = row.granted_to(claim)
        {
            // A holder has no place.
            self.dequeue(&claim.key, claim.nonce)?;
            return Ok(Enqueued::Granted(grant, row.attributes()?));
        }
        if !has_place {
            return Ok(Enqueued::Gone);
        }
        let waiters = self.waiters(&claim.key)?;
        let ahead = waiters.iter().position(|waiter| waiter.nonce == claim.nonce);
        let ahead = ahead.and_then(|ahead| u64::try_from(ahead).ok());
        Ok(Enqueued::Queued(Place::new(ahead, row.as_ref().and_then(Row::expires_in))))
    }

    fn leave(&self, key: &LeaseKey, nonce: Nonce) -> Result<(), Fault> {
        self.dequeue(key, nonce)?;
        let row = self.row(key)?;
        let current = row.as_ref().and_then(|row| row.grant.as_ref());
        if let (Some(current), Some(token)) = (current, row.as_ref().and_then(|row| row.token))
            && current.nonce == nonce
        {
            let params = named_params! {
                ":key": key.as_str(),
                ":nonce": nonce_text(nonce),
                ":token": whole(token.get()),
            };
            self.execute(&self.settings.statements.release, params)?;
        }
        self.hand_on(key)
    }

    fn enqueue(&self, request: &ClaimRequest) -> Result<(), Fault> {
        let claim = &request.claim;
        let params = named_params! {
            ":key": claim.key.as_str(),
            ":nonce": nonce_text(claim.nonce),
            ":request": whole(claim.request.get()),
            ":lessee": claim.lessee.as_str(),
            ":ttl": micros(claim.ttl),
            ":attributes": request.attributes,
        };
        self.execute(&self.settings.statements.enqueue, params).map(drop)
    }

    /// Returns whether the claim has a place.
    fn renew(&self, claim: &Claim) -> Result<bool, Fault> {
        let params = named_params! {
            ":key": claim.key.as_str(),
            ":nonce": nonce_text(claim.nonce),
            ":request": whole(claim.request.get()),
            ":ttl": micros(claim.ttl),
        };
        Ok(self.execute(&self.settings.statements.renew, params)? > 0)
    }

    fn dequeue(&self, key: &LeaseKey, nonce: Nonce) -> Result<(), Fault> {
        let params = named_params! { ":key": key.as_str(), ":nonce": nonce_text(nonce) };
        self.execute(&self.settings.statements.dequeue, params).map(drop)
    }

    /// Moves a row of another boot to this boot.
    fn seen_row(&self, key: &LeaseKey) -> Result<Option<Row>, Fault> {
        let row = self.row(key)?;
        if !row.as_ref().is_some_and(|row| row.is_of_another_boot) {
            return Ok(row);
        }
        self.see(key)?;
        self.row(key)
    }

    fn waiters(&self, key: &LeaseKey) -> Result<Vec<Waiter>, Fault> {
        let params = named_params! { ":key": key.as_str() };
        let waiters = self.rows(&self.settings.statements.queue, params, |row| {
            let (nonce, request): (String, i64) = (row.get(0)?, row.get(1)?);
            let (lessee, ttl, attributes): (String, i64, String) =
                (row.get(2)?, row.get(3)?, row.get(4)?);
            Ok((nonce, request, lessee, ttl, attributes))
        })?;
        let waiter =
            |(nonce, request, lessee, ttl, attributes): (String, i64, String, i64, String)| {
                let request = RequestNumber::new(u64::try_from(request).ok()?);
                let lessee = Lessee::new(lessee).ok()?;
                Some(Waiter { nonce: read_nonce(&nonce)?, request, lessee, ttl, attributes })
            };
        // Another program may have written an odd place. The key's other waiters must not wait for it.
        Ok(waiters.into_iter().filter_map(waiter).collect())
    }
}
