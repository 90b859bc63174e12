//! A memory store without one rule of sessions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_core::store::{
    Beat, BoxStream, Claim, Ended, Freed, Grant, Heartbeat, LeaseRecord, LeaseTable, LockStore,
    Nonce, Obtained, Parent, RequestNumber, SessionState, Sessions, Vacancy, async_trait,
};
use lease_core::{Attributes, Change, FencingToken, Holder, LeaseKey, Lessee, StoreError, Written};
use lease_memory::MemoryStore;

/// The names are those of the test `session_model`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A session has ended only if its end is written.
    EndIsWritten,
    /// The record of a lease under a session names the token of this session.
    ParentToken,
    /// Each grant has a larger token than all earlier grants.
    TokenGrows,
    /// A release names the grant, not only the session.
    ReleaseNamesGrant,
    /// An update names the grant, not only the lessee.
    CheckpointNamesGrant,
    /// A claim names the key's token that its sender has read.
    ClaimNamesToken,
    /// If a granted claim is repeated, the store returns its grant again.
    Settle,
    /// A claim contains the proof of the former session's end. The store does not check the
    /// session's row.
    ProofBeforeClaim,
}

#[derive(Debug)]
pub(crate) struct Broken {
    store: MemoryStore,
    without: Option<Rule>,
    child: Arc<Mutex<Option<Grant>>>,
}

impl Broken {
    pub(crate) fn new(without: Option<Rule>) -> Self {
        Self { store: MemoryStore::counting_from_one(), without, child: Arc::default() }
    }

    fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    /// The vacancy fits the record. If `seems_ended` returns true for the key's session, the proof
    /// of its end is forged.
    async fn obtain_anyhow(
        &self,
        claim: &Claim,
        seems_ended: impl FnOnce(&Parent) -> bool,
    ) -> Result<Obtained, StoreError> {
        let record = self.store.read(&claim.key).await?;
        let holder = record.as_ref().and_then(|record| record.holder.as_ref());
        let session = holder.and_then(|holder| holder.parent.clone());
        let proof = session.filter(seems_ended).map(Ended::written);
        match Vacancy::seen(&claim.key, record.as_ref(), &claim.lessee, proof.as_ref()) {
            Some(vacancy) => self.store.obtain_under(claim, &vacancy).await,
            None => Ok(Obtained::Held(Holder::new(claim.lessee.clone(), Some(Duration::ZERO)))),
        }
    }

    async fn is_held(&self, session: &Parent) -> Result<bool, StoreError> {
        let holder = self.store.holder(&session.key).await?;
        Ok(holder.is_some_and(|holder| holder.token == Some(session.token)))
    }
}

#[async_trait]
impl Sessions for Broken {
    async fn obtain_under(&self, claim: &Claim, vacancy: &Vacancy) -> Result<Obtained, StoreError> {
        let refused = Obtained::Held(Holder::new(claim.lessee.clone(), Some(Duration::ZERO)));
        if self.leaves_out(Rule::Settle) && claim.request > RequestNumber::FIRST {
            return Ok(refused);
        }
        if let (true, Some(former)) = (self.leaves_out(Rule::ProofBeforeClaim), vacancy.former())
            && self.is_held(former).await?
        {
            return Ok(refused);
        }
        let mut answer = self.store.obtain_under(claim, vacancy).await?;
        if let Obtained::Held(_) = &answer {
            if self.leaves_out(Rule::ClaimNamesToken) {
                answer = self.obtain_anyhow(&again(claim), |_session| false).await?;
            }
            if let Some(former) = vacancy.former()
                && self.leaves_out(Rule::ParentToken)
            {
                let of_worker = |session: &Parent| session.key == former.key;
                answer = self.obtain_anyhow(claim, of_worker).await?;
            }
        }
        if let Obtained::Granted(grant, _) = &mut answer {
            if let Some(seen) = vacancy.token()
                && self.leaves_out(Rule::TokenGrows)
            {
                grant.token = seen;
            }
            *self.child.lock().unwrap() = Some(grant.clone());
        }
        Ok(answer)
    }

    async fn end_session(&self, session: &Parent) -> Result<SessionState, StoreError> {
        let is_forged =
            self.leaves_out(Rule::EndIsWritten) || self.leaves_out(Rule::ProofBeforeClaim);
        match self.store.end_session(session).await? {
            SessionState::Held(_) if is_forged => {
                Ok(SessionState::Ended(Ended::written(session.clone())))
            }
            state => Ok(state),
        }
    }

    async fn read_all(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        let mut records = self.store.read_all(keys).await;
        let is_forged =
            self.leaves_out(Rule::EndIsWritten) || self.leaves_out(Rule::ProofBeforeClaim);
        for record in records.iter_mut().flatten().flatten() {
            // Simulates a stale read: the session seems expired, although it was extended.
            if is_forged && record.key.as_str().starts_with("workers/") {
                record.holder = None;
            }
            let parent = record.holder.as_mut().and_then(|holder| holder.parent.as_mut());
            if let Some(parent) = parent.filter(|_| self.leaves_out(Rule::ParentToken)) {
                parent.token = FencingToken::new(1).unwrap();
            }
        }
        records
    }

    async fn count(&self, key: &LeaseKey, name: &str) -> Result<i64, StoreError> {
        self.store.count(key, name).await
    }
}

/// With another nonce, so that the store does not recognise the claim.
fn again(claim: &Claim) -> Claim {
    let mut again = claim.clone();
    again.nonce = Nonce::new(uuid::Uuid::from_u128(!claim.nonce.get().as_u128()));
    again
}

#[async_trait]
impl LockStore for Broken {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        self.store.obtain(claim).await
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.store.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        let child = self.child.lock().unwrap().clone();
        let is_sibling = |child: &Grant| grant.parent.is_some() && child.parent == grant.parent;
        if let Some(sibling) = child.filter(is_sibling)
            && self.leaves_out(Rule::ReleaseNamesGrant)
        {
            return self.store.release(&sibling, reserved).await;
        }
        self.store.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.store.adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.store.holder(key).await
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.store.watch(key).await
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }
}

#[async_trait]
impl LeaseTable for Broken {
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
        let written = self.store.update(grant, change).await?;
        let child = self.child.lock().unwrap().clone();
        if let (Written::Lost(_), Some(child)) = (written, child)
            && self.leaves_out(Rule::CheckpointNamesGrant)
            && child.lessee == grant.lessee
        {
            return self.store.update(&child, change).await;
        }
        Ok(written)
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
