//! The lock operations: each is a replacement of the key's record.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::ready;
use lease_core::store::{
    Beat, BoxStream, Claim, Freed, Grant, Heartbeat, HeldKey, LeaseRecord, LeaseTable, LockStore,
    Obtained,
};
use lease_core::{GrantId, Holder, LeaseKey, StoreError, StoreErrorKind};

use crate::decision::Seen;
use crate::lease_state::LeaseState;
use crate::register::{Register, Versioned};
use crate::requests::Outcome;
use crate::store::RegisterStore;

impl<R: Register> RegisterStore<R> {
    /// Waits until the grant in `known` no longer holds the key. Ends early if this cannot be read, or if the register
    /// woke it without a change: the locker then backs off.
    async fn freed(self, key: LeaseKey, known: Option<Versioned>, mut change: Freed) {
        let token = known.as_ref().and_then(|known| known.record.token());
        let mut seen = known.map(|known| known.version);
        loop {
            change.next().await;
            let Ok(found) = self.read_record(&key).await else { return };
            let is_held = |seen: Seen<'_>| {
                matches!(seen.state, LeaseState::Held(_)) && seen.record.token() == token
            };
            if !self.seen(&key, found.as_ref()).is_some_and(is_held) {
                return;
            }
            let version = found.as_ref().map(|found| found.version.clone());
            // The service may have forgotten the version: then each watch of it ends at once.
            if version == seen {
                return;
            }
            seen = version;
            match self.shared.register.changed(&key, seen.as_ref()).await {
                Ok(next) if next.can_wake() => change = next,
                _ => return,
            }
            self.keep(&key, found);
        }
    }
}

#[async_trait]
impl<R: Register> LockStore for RegisterStore<R> {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        refuse_child(claim)?;
        let key = &claim.key;
        match self.attempt(key, |seen| self.decide_claim(claim, seen)).await? {
            Outcome::Answer(obtained) => Ok(obtained),
            Outcome::Contended(Some(record)) => {
                Ok(Obtained::Held(record.last_holder(&claim.lessee, Duration::ZERO)))
            }
            Outcome::Contended(None) => {
                let text = format!("{:?} is created and deleted again and again", key.as_str());
                Err(StoreError::new(StoreErrorKind::Unavailable, text))
            }
        }
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.request(&grant.key, |seen| self.decide_heartbeat(grant, beat, seen)).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.request(&grant.key, |seen| self.decide_release(grant, reserved, seen)).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        refuse_child(claim)?;
        self.request(&grant.key, |seen| self.decide_adoption(grant, claim, seen)).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let read = self.read_record(key).await?;
        let seen = self.seen(key, read.as_ref());
        Ok(seen.and_then(|seen| seen.record.holder(seen.state)))
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        self.request(key, |seen| Ok(self.decide_eviction(grant, seen))).await
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        let records = self.list(prefix);
        records.filter_map(|record| ready(record.map(LeaseRecord::into_held).transpose())).boxed()
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let register = &self.shared.register;
        let mut known = self.shared.known.get(key);
        let seen = known.as_ref().map(|known| &known.version);
        let mut change = register.changed(key, seen).await?;
        if !change.can_wake() {
            return Ok(change);
        }
        if known.is_none() {
            known = self.read_record(key).await?;
            let seen = known.as_ref().map(|known| &known.version);
            change = register.changed(key, seen).await?;
        }
        Ok(Freed::when(self.clone().freed(key.clone(), known, change)))
    }
}

/// Refuses a claim under a session: a session and its leases are several records.
fn refuse_child(claim: &Claim) -> Result<(), StoreError> {
    if claim.parent.is_none() {
        return Ok(());
    }
    let text = "this store keeps no leases under a session";
    Err(StoreError::new(StoreErrorKind::Unsupported, text))
}
