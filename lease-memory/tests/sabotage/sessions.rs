//! Bugs in the part of a store that keeps leases under sessions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::conformance::{Fixture, Reopened};
use lease_core::store::{
    Beat, Claim, Ended, Freed, Grant, Heartbeat, HeldKey, InTurn, LastGrant, LeaseRecord,
    LeaseTable, LockStore, Obtained, Parent, SessionState, Sessions, Vacancy,
};
use lease_core::{Attributes, Change, GrantId, Holder, LeaseKey, Lessee, StoreError, Written};
use lease_memory::MemoryStore;

/// Each bug is a plausible mistake of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sessional {
    ExpiresChildren,
    ForgetsTheSession,
    GrantsChildrenToOthers,
    EndsHeldSessions,
    DoesNotWriteEnds,
    EndsLaterSessions,
    HidesEnds,
    RefusesProofs,
    AcceptsOtherProofs,
    IgnoresTheSeenToken,
    RefusesRepeatedClaims,
    GrantsTheSameToken,
    ReleasesBySession,
    UpdatesBySession,
    EvictsChildren,
    HeartbeatKeepsTheSession,
    ComparesTheTokenAlone,
    HidesReservations,
    ReadsInReverse,
    DoesNotCount,
}

#[derive(Debug, Clone)]
pub(crate) struct Handle {
    store: MemoryStore,
    bug: Sessional,
    child: Arc<Mutex<Option<Grant>>>,
}

#[async_trait]
impl Fixture for Sessional {
    type Store = Handle;

    async fn store(&self) -> Handle {
        Handle { store: MemoryStore::counting_from_one(), bug: *self, child: Arc::default() }
    }

    async fn another(&self, store: &Handle) -> Handle {
        store.clone()
    }

    /// The underlying store outlives its handles, like a server.
    async fn reopen(&self, store: Handle) -> Reopened<Handle> {
        Reopened::Intact(store)
    }

    fn time_may_be_paused(&self) -> bool {
        true
    }
}

impl Handle {
    fn is(&self, bug: Sessional) -> bool {
        self.bug == bug
    }

    fn sibling(&self, grant: &Grant) -> Option<Grant> {
        let child = self.child.lock().unwrap().clone();
        child.filter(|child| grant.parent.is_some() && child.parent == grant.parent)
    }

    /// Sends `claim` with a vacancy that fits the record. If necessary, forges the proof that a session has
    /// ended.
    async fn obtain_anyhow(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let record = self.store.read(&claim.key).await?;
        let holder = record.as_ref().and_then(|record| record.holder.as_ref());
        let forged = holder.and_then(|holder| holder.parent.clone()).map(Ended::written);
        let vacancy = Vacancy::seen(&claim.key, record.as_ref(), &claim.lessee, forged.as_ref());
        match vacancy {
            Some(vacancy) => self.store.obtain_under(claim, &vacancy).await,
            // Held by a lease with a ttl.
            None => Ok(Obtained::Held(Holder::new(claim.lessee.clone(), None))),
        }
    }
}

#[async_trait]
impl Sessions for Handle {
    async fn obtain_under(&self, claim: &Claim, vacancy: &Vacancy) -> Result<Obtained, StoreError> {
        let child = self.child.lock().unwrap().clone();
        if self.is(Sessional::RefusesProofs) && vacancy.former().is_some() {
            return Ok(Obtained::Held(Holder::new(claim.lessee.clone(), None)));
        }
        if let Some(child) = child.filter(|child| child.nonce == claim.nonce)
            && self.is(Sessional::RefusesRepeatedClaims)
        {
            return Ok(Obtained::Held(child.holder(None)));
        }
        let mut plain = claim.clone();
        plain.parent = None;
        let claim = if self.is(Sessional::ExpiresChildren) { &plain } else { claim };
        let mut answer = self.store.obtain_under(claim, vacancy).await?;
        if let Obtained::Held(holder) = &answer
            && (self.is(Sessional::IgnoresTheSeenToken) && holder.parent.is_none()
                || self.is(Sessional::AcceptsOtherProofs)
                    && vacancy.former().is_some()
                    && holder.parent.is_some())
        {
            let fresh = Claim::new(
                claim.key.clone(),
                claim.lessee.clone(),
                lease_core::store::Nonce::random(),
                claim.ttl,
            );
            answer = self.obtain_anyhow(&fresh).await?;
        }
        if let Obtained::Held(_) = &answer
            && self.is(Sessional::ComparesTheTokenAlone)
            && let Some(record) = self.store.read(&claim.key).await?
            && record.holder.is_none()
            && record.token == vacancy.token()
        {
            answer = self.obtain_anyhow(claim).await?;
        }
        if let Obtained::Granted(grant, _) = &mut answer {
            if let Some(seen) = vacancy.token()
                && self.is(Sessional::GrantsTheSameToken)
            {
                grant.token = seen;
            }
            *self.child.lock().unwrap() = Some(grant.clone());
        }
        Ok(answer)
    }

    async fn end_session(&self, session: &Parent) -> Result<SessionState, StoreError> {
        let ended = SessionState::Ended(Ended::written(session.clone()));
        let holder = self.store.holder(&session.key).await?;
        let token = holder.as_ref().and_then(|holder| holder.token);
        if self.is(Sessional::DoesNotWriteEnds) && holder.is_none() {
            return Ok(ended);
        }
        if let Some(token) = token
            && (self.is(Sessional::EndsHeldSessions) && token == session.token
                || self.is(Sessional::EndsLaterSessions) && token > session.token)
        {
            self.store.evict(&session.key, &GrantId::from(token)).await?;
            return Ok(ended);
        }
        self.store.end_session(session).await
    }

    async fn read_all(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        let mut records = self.store.read_all(keys).await;
        if self.is(Sessional::ReadsInReverse) {
            records.reverse();
        }
        for record in records.iter_mut().flatten().flatten() {
            if self.is(Sessional::HidesEnds) {
                record.last_grant = LastGrant::Open;
            }
            if self.is(Sessional::HidesReservations) {
                record.reserved = None;
            }
        }
        records
    }

    async fn count(&self, key: &LeaseKey, name: &str) -> Result<i64, StoreError> {
        let counted = self.store.count(key, name).await?;
        Ok(if self.is(Sessional::DoesNotCount) { 1 } else { counted })
    }
}

#[async_trait]
impl LockStore for Handle {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let mut answer = self.store.obtain(claim).await?;
        if let Obtained::Held(holder) = &mut answer {
            if holder.parent.is_some() && self.is(Sessional::GrantsChildrenToOthers) {
                return self.obtain_anyhow(claim).await;
            }
            if self.is(Sessional::ForgetsTheSession) {
                holder.parent = None;
            }
        }
        Ok(answer)
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        if grant.parent.is_some() && self.is(Sessional::HeartbeatKeepsTheSession) {
            return Ok(Heartbeat::Extended);
        }
        self.store.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        match self.sibling(grant).filter(|_| self.is(Sessional::ReleasesBySession)) {
            Some(sibling) => self.store.release(&sibling, reserved).await,
            None => self.store.release(grant, reserved).await,
        }
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.store.adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let mut holder = self.store.holder(key).await?;
        if let Some(holder) = holder.as_mut().filter(|_| self.is(Sessional::ForgetsTheSession)) {
            holder.parent = None;
        }
        Ok(holder)
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        let evicted = self.store.evict(key, grant).await;
        evicted
            .or_else(|error| if self.is(Sessional::EvictsChildren) { Ok(true) } else { Err(error) })
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        self.store.scan(prefix)
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.store.watch(key).await
    }

    fn in_turn(&self) -> Option<&dyn InTurn> {
        self.store.in_turn()
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }
}

#[async_trait]
impl LeaseTable for Handle {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        self.store.read(key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        self.store.list(prefix)
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        self.store.create(key, attributes).await
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        match self.sibling(grant).filter(|_| self.is(Sessional::UpdatesBySession)) {
            Some(sibling) => self.store.update(&sibling, change).await,
            None => self.store.update(grant, change).await,
        }
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        self.store.transfer(grant, to, reserved).await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        self.store.delete(grant).await
    }
}
