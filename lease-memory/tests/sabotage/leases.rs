//! Bugs in the part of a store that grants leases.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::ready;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use lease_core::store::{
    Beat, Claim, Freed, Grant, Heartbeat, HeldKey, InTurn, LeaseTable, LockStore, Nonce, Obtained,
};
use lease_core::{Attributes, FencingToken, GrantId, Holder, LeaseKey, LossCause, StoreError};
use uuid::Uuid;

use crate::saboteur::{KeptFor, Sabotage, Sabotaged, first_token, now};

#[async_trait]
impl LockStore for Sabotaged {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        if self.batches_claims() {
            return self.obtain_in_batch(claim).await;
        }
        let known = self.known(&claim.key);
        let answer = self.obtain_with_attributes(claim).await?;
        match (answer, known) {
            (Obtained::Held(mut holder), Some(known)) => {
                let stands = self.store.holder(&claim.key).await?.is_some();
                let same_lessee = holder.lessee == claim.lessee;
                let young = now() < known.granted_at + known.grant.ttl / 4;
                let next = after(&holder);
                let granted = || Obtained::Granted(claim.granted(next), Attributes::new());
                // A replica that does not have the grant yet would return this answer.
                if self.is(Sabotage::GrantsTwice) && stands && young && !same_lessee {
                    return Ok(granted());
                }
                if self.is(Sabotage::GrantsOneLesseeTwice) && stands && same_lessee {
                    return Ok(granted());
                }
                if self.regrants_released_nonces()
                    && known.released
                    && known.grant.nonce == claim.nonce
                {
                    let mut again = self.store.obtain(&Self::fresh(claim)).await?;
                    if let Obtained::Granted(grant, _) = &mut again
                        && self.is(Sabotage::RegrantsUnderTheSameToken)
                    {
                        grant.token = known.grant.token;
                    }
                    return Ok(again);
                }
                let is_last = known.grant.nonce == claim.nonce;
                if holder.expires_in == Some(Duration::ZERO)
                    && (self.is(Sabotage::NamesTheLesseeBefore) && is_last
                        || self.is(Sabotage::NamesTheLesseeAfter) && !is_last)
                {
                    holder.lessee = "b".parse().unwrap();
                }
                Ok(Obtained::Held(holder))
            }
            (Obtained::Granted(mut grant, attributes), known) => {
                let token = grant.token;
                let repeated = known.as_ref().is_some_and(|k| k.grant.nonce == claim.nonce);
                if self.is(Sabotage::ExtendsOnRepeatedClaim) && repeated {
                    self.store.heartbeat(&grant, Beat::GRANTED.next()).await?;
                }
                if self.is(Sabotage::NamesTheRepeatedRequest) && repeated {
                    grant.request = Some(claim.request);
                }
                if let Some(known) = known {
                    if self.is(Sabotage::ForgetsTheToken) && known.released {
                        grant.token = first_token();
                    }
                    if self.is(Sabotage::ForgetsTheTokenOnExpiry) && !known.ended {
                        grant.token = first_token();
                    }
                }
                self.learn(&grant, token);
                self.amend(&grant.key, |known| known.set_attributes = !claim.attributes.is_empty());
                Ok(Obtained::Granted(grant, attributes))
            }
            (answer, None) => Ok(answer),
        }
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let shorter = self.known(&grant.key).is_some_and(|known| grant.ttl < known.grant.ttl);
        if let (true, Some(known)) =
            (self.is(Sabotage::HeartbeatIgnoresItsTtl), self.known(&grant.key))
        {
            let mut usual = grant.clone();
            usual.ttl = known.grant.ttl;
            return self.store.heartbeat(&usual, beat).await;
        }
        let known = self.known(&grant.key).filter(|known| known.grant.nonce == grant.nonce);
        if let Some(last) = known.as_ref().and_then(|known| known.beat)
            && last >= beat
            && self.is(if known.as_ref().is_some_and(|known| known.adopted.is_some()) {
                Sabotage::AdoptionKeepsTheBeat
            } else {
                Sabotage::GrantKeepsTheBeat
            })
        {
            return Ok(Heartbeat::Overtaken);
        }
        let holder = self.store.holder(&grant.key).await?;
        let is_duplicated = holder.is_some_and(|holder| holder.lessee == grant.lessee);
        if self.is(Sabotage::ExtendsWhatWasReleased)
            && known.is_some_and(|known| known.released)
            && is_duplicated
        {
            return Ok(Heartbeat::Extended);
        }
        match self.store.heartbeat(&self.as_granted(grant), beat).await? {
            Heartbeat::Extended => {
                self.amend(&grant.key, |known| known.beat = Some(beat));
                Ok(Heartbeat::Extended)
            }
            Heartbeat::Overtaken if self.is(Sabotage::LateHeartbeatShortens) && shorter => {
                self.store.heartbeat(grant, self.high_beat()).await?;
                Ok(Heartbeat::Overtaken)
            }
            Heartbeat::Overtaken if self.is(Sabotage::LateHeartbeatIsCalledALoss) => {
                Ok(Heartbeat::Lost(LossCause::Expired))
            }
            Heartbeat::Lost(LossCause::Expired) if self.is(Sabotage::HeartbeatRevives) => {
                let nonce = Nonce::new(Uuid::from_u128(!grant.nonce.get().as_u128()));
                let (key, lessee) = (grant.key.clone(), grant.lessee.clone());
                self.store.obtain(&Claim::new(key, lessee, nonce, grant.ttl)).await?;
                Ok(Heartbeat::Extended)
            }
            answer => Ok(answer),
        }
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        if self.is(Sabotage::ReleasesInSilence) {
            self.silent.store(true, Ordering::SeqCst);
        }
        self.before_release(grant).await?;
        let known = self.known(&grant.key);
        if self.is(Sabotage::IgnoresTheNonceOnRelease)
            && let Some(known) = known
        {
            return self.store.release(&known.grant, reserved).await;
        }
        self.amend(&grant.key, |known| {
            known.released |= known.grant.nonce == grant.nonce;
            known.ended |= known.released;
            if known.released && reserved.is_some() {
                known.kept_for = Some(KeptFor::Later);
            }
        });
        let forgets = self.is(Sabotage::ForgetsAttributesOfClaims) && reserved.is_none();
        if forgets && self.known(&grant.key).is_some_and(|known| known.set_attributes) {
            return self.store.delete(grant).await.map(drop);
        }
        let reserved = reserved.filter(|_| !self.is(Sabotage::IgnoresReservations));
        self.store.release(grant, reserved).await
    }

    fn in_turn(&self) -> Option<&dyn InTurn> {
        self.sabotage.has_queues().then_some(self)
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let known = self.known(&grant.key);
        let left = self.store.holder(&grant.key).await?.and_then(|holder| holder.expires_in);
        match self.adopt_with_attributes(grant, claim).await? {
            Obtained::Granted(adopted, mut attributes) => {
                let (token, mut granted) = (adopted.token, adopted);
                if let (true, Some(left)) = (self.is(Sabotage::AdoptionKeepsTheOldExpiry), left) {
                    let mut as_before = granted.clone();
                    as_before.ttl = left;
                    self.store.heartbeat(&as_before, Beat::GRANTED.next()).await?;
                }
                if self.is(Sabotage::AdoptionForgetsAttributes) {
                    attributes.clear();
                }
                if self.is(Sabotage::KeepsTheTokenOnAdoption) {
                    granted = claim.granted(grant.token);
                }
                self.learn(&granted, token);
                self.amend(&grant.key, |known| known.adopted = Some(grant.nonce));
                Ok(Obtained::Granted(granted, attributes))
            }
            Obtained::Held(holder) => {
                let adopted = known.as_ref().and_then(|known| known.adopted);
                if self.is(Sabotage::AdoptsTwice) && adopted == Some(grant.nonce) {
                    let next = after(&holder);
                    return Ok(Obtained::Granted(claim.granted(next), Attributes::new()));
                }
                let released = known.is_some_and(|k| k.released && k.grant.nonce == grant.nonce);
                let stands = holder.expires_in > Some(Duration::ZERO);
                let evicted = stands && holder.holds(grant);
                if self.is(Sabotage::AdoptsWhatWasEvicted) && evicted {
                    self.store.release(grant, None).await?;
                    return self.store.obtain(claim).await;
                }
                if self.is(Sabotage::AdoptsWhatWasReleased) && released {
                    return self.store.obtain(claim).await;
                }
                Ok(Obtained::Held(holder))
            }
        }
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let holder = self.store.holder(key).await?;
        let expired = self.known(key).filter(|known| !known.ended);
        if let (true, None, Some(known)) =
            (self.is(Sabotage::TellsOfExpiredHolders), &holder, expired)
        {
            return Ok(Some(known.grant.holder(Some(Duration::ZERO))));
        }
        if let (None, Some(known)) = (&holder, self.known(key))
            && known.kept_for.is_some_and(|kept_for| {
                self.is(match kept_for {
                    KeptFor::Later => Sabotage::TellsOfReservations,
                    KeptFor::OneLessee => Sabotage::TellsOfTransfers,
                })
            })
        {
            return Ok(Some(known.grant.holder(None)));
        }
        Ok(holder)
    }

    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        let end = if self.is(Sabotage::BatchHasAnEnd) { 256 } else { beats.len() };
        self.store.heartbeat_all(beats.get(..end).unwrap_or(beats))
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        let current = self.store.holder(key).await?.and_then(|holder| holder.grant);
        let is_current = current.as_ref() == Some(grant);
        match (self.sabotage, current, self.known(key)) {
            (Sabotage::EvictsByKeyAlone, Some(current), _) => self.store.evict(key, &current).await,
            (Sabotage::EvictionFreesAtOnce, _, Some(known)) if is_current => {
                self.store.release(&known.grant, None).await?;
                Ok(true)
            }
            (Sabotage::EvictsNoHolderOfARecord, _, _) if self.has_attributes(key).await? => {
                Ok(true)
            }
            _ => self.store.evict(key, grant).await,
        }
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        if self.is(Sabotage::ScansOtherPrefixes) {
            return self.store.scan(prefix.trim_end_matches('/'));
        }
        if self.is(Sabotage::ScansNoRecords) {
            let has_no_record = |held: &Result<HeldKey, StoreError>| {
                let key = &held.as_ref().unwrap().key;
                ready(!self.has_attributes(key).now_or_never().unwrap().unwrap())
            };
            return self.store.scan(prefix).filter(has_no_record).boxed();
        }
        self.store.scan(prefix)
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let freed = self.store.watch(key).await?;
        let silent = Arc::clone(&self.silent);
        Ok(Freed::when(async move {
            freed.await;
            if silent.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
        }))
    }
}

impl Sabotaged {
    async fn has_attributes(&self, key: &LeaseKey) -> Result<bool, StoreError> {
        let record = self.store.read(key).await?;
        Ok(record.is_some_and(|record| !record.attributes.is_empty()))
    }
}

fn after(holder: &Holder) -> FencingToken {
    FencingToken::new(holder.token.unwrap().get() + 1).unwrap()
}
