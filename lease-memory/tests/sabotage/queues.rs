//! Bugs in the queues of a store.

use std::time::Duration;

use async_trait::async_trait;
use lease_core::StoreError;
use lease_core::store::{
    Claim, Enqueued, Grant, InTurn, LockStore, Notice, Notices, Place, RequestNumber,
};

use crate::saboteur::{Sabotage, Sabotaged};

impl Sabotage {
    pub(crate) fn has_queues(self) -> bool {
        matches!(
            self,
            Self::GrantsTheLastFirst
                | Self::LetsPlainClaimsOvertake
                | Self::GrantsTheDead
                | Self::RenewalMovesToTheEnd
                | Self::ForgetsThatWaitersLeft
                | Self::LeavingKeepsTheGrant
                | Self::NamesTheFirstRequest
                | Self::RenewalIgnoresExpiry
                | Self::KeepsLateGrantsForEver
                | Self::RenewalJoinsTheQueue
        )
    }
}

#[async_trait]
impl InTurn for Sabotaged {
    async fn listen(&self, claim: &Claim) -> Result<Notices, StoreError> {
        let mut notices = self.store.listen(claim).await?;
        if !self.is(Sabotage::NamesTheFirstRequest) {
            return Ok(notices);
        }
        let (notify, changed) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let mut notice = notices.next().await;
                let is_last = notice == Notice::Missed;
                if let Notice::Granted(grant, _) = &mut notice {
                    grant.request = Some(RequestNumber::FIRST);
                }
                if notify.send(notice).is_err() || is_last {
                    return;
                }
            }
        });
        Ok(changed.into())
    }

    async fn enqueue(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        let has_left = self.left.lock().unwrap().contains(&claim.nonce);
        if self.is(Sabotage::KeepsLateGrantsForEver) && has_left {
            let mut longer = claim.clone();
            longer.ttl = claim.ttl * 1_000;
            return self.store.enqueue(&longer).await;
        }
        let waiting = self.waiting();
        let is_new = !waiting.iter().any(|waiting| waiting.nonce == claim.nonce);
        if is_new {
            self.waiting.lock().unwrap().push(claim.clone());
        }
        if self.is(Sabotage::GrantsTheLastFirst) && is_new {
            for earlier in &waiting {
                self.store.leave(earlier).await?;
            }
            let answer = self.store.enqueue(claim).await?;
            for earlier in waiting.iter().rev() {
                self.store.enqueue(earlier).await?;
            }
            return Ok(answer);
        }
        self.store.enqueue(claim).await
    }

    async fn renew(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        if self.is(Sabotage::RenewalIgnoresExpiry) && self.store.holder(&claim.key).await?.is_none()
        {
            return Ok(Enqueued::Queued(Place::new(Some(0), Some(claim.ttl))));
        }
        if self.is(Sabotage::GrantsTheDead) {
            for waiting in self.waiting() {
                self.store.renew(&waiting).await?;
            }
        }
        let answer = self.store.renew(claim).await?;
        match answer {
            Enqueued::Queued(_) if self.is(Sabotage::RenewalMovesToTheEnd) => {
                self.store.leave(claim).await?;
                self.store.enqueue(claim).await
            }
            Enqueued::Gone if self.is(Sabotage::RenewalJoinsTheQueue) => {
                self.store.enqueue(claim).await
            }
            answer => Ok(answer),
        }
    }

    async fn leave(&self, claim: &Claim) -> Result<(), StoreError> {
        self.left.lock().unwrap().push(claim.nonce);
        let holder = self.store.holder(&claim.key).await?;
        let is_holder = holder.is_some_and(|holder| holder.lessee == claim.lessee);
        if self.is(Sabotage::LeavingKeepsTheGrant) && is_holder
            || self.is(Sabotage::ForgetsThatWaitersLeft) && !is_holder
        {
            return Ok(());
        }
        self.waiting.lock().unwrap().retain(|waiting| waiting.nonce != claim.nonce);
        self.store.leave(claim).await
    }
}

impl Sabotaged {
    fn waiting(&self) -> Vec<Claim> {
        self.waiting.lock().unwrap().clone()
    }

    pub(crate) async fn before_release(&self, grant: &Grant) -> Result<(), StoreError> {
        self.waiting.lock().unwrap().retain(|waiting| waiting.nonce != grant.nonce);
        for waiting in self.waiting() {
            if self.is(Sabotage::LetsPlainClaimsOvertake) {
                self.store.leave(&waiting).await?;
                let store = self.store.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    store.enqueue(&waiting).await
                });
            }
        }
        Ok(())
    }
}
