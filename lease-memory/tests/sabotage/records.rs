//! Bugs in the part of a store that keeps records.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::store::{Claim, Grant, LeaseRecord, LeaseTable, LockStore, Nonce, Obtained};
use lease_core::{Attributes, Change, LeaseKey, Lessee, LossCause, StoreError, Value, Written};
use uuid::Uuid;

use crate::saboteur::{KeptFor, Sabotage, Sabotaged};

#[async_trait]
impl LeaseTable for Sabotaged {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        self.store.read(key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        if self.is(Sabotage::ListsOtherPrefixes) {
            return self.store.list(prefix.trim_end_matches('/'));
        }
        self.store.list(prefix)
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        let created = self.store.create(key, attributes).await?;
        if !created && self.is(Sabotage::CreateOverwrites) {
            let old = self.store.read(key).await?.map(|record| record.attributes);
            let lessee = Lessee::new("saboteur").unwrap();
            let nonce = Nonce::new(Uuid::from_u128(1));
            let claim = Claim::new(key.clone(), lessee, nonce, Duration::from_secs(1));
            if let Obtained::Granted(grant, _) = self.store.obtain(&claim).await? {
                let change = old
                    .into_iter()
                    .flatten()
                    .fold(Change::new(), |change, (name, _)| change.remove(name));
                let _ = self.store.update(&grant, &change).await?;
                self.store.release(&grant, None).await?;
            }
        }
        Ok(created)
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        let is_text = |value: Option<&Value>| value.is_none_or(|it| it.as_text().is_some());
        if self.is(Sabotage::ExpectsTextAlone)
            && !change.expected().all(|(_, value)| is_text(value))
        {
            return Ok(Written::Unexpected);
        }
        let mut written = self.store.update(grant, change).await?;
        if let (Written::Lost(_), Some(known)) = (written, self.known(&grant.key))
            && self.is(if known.grant.nonce == grant.nonce {
                Sabotage::UpdateIgnoresTheToken
            } else {
                Sabotage::UpdateIsNotFenced
            })
            // Another promise covers updates with expectations.
            && change.expected().next().is_none()
        {
            written = self.store.update(&known.grant, change).await?;
        }
        if let (Written::Lost(LossCause::Expired), true) =
            (written, self.is(Sabotage::UpdatesWhatHasExpired))
        {
            let claim =
                Claim::new(grant.key.clone(), grant.lessee.clone(), Nonce::random(), grant.ttl);
            if let Obtained::Granted(again, _) = self.store.obtain(&claim).await? {
                written = self.store.update(&again, change).await?;
                self.store.release(&again, None).await?;
            }
        }
        match written {
            Written::Unexpected => {
                let applied = self.applied.lock().unwrap().contains(change);
                let careless = match self.sabotage {
                    Sabotage::ExpectsTheFirstAlone => expecting(change, change.expected().take(1)),
                    Sabotage::IgnoresWhatIsExpectedAbsent => {
                        expecting(change, change.expected().filter(|(_, value)| value.is_some()))
                    }
                    Sabotage::RepeatsWhatItHasApplied if applied => expecting(change, []),
                    _ => return Ok(written),
                };
                return self.store.update(grant, &careless).await;
            }
            Written::Lost(_) if self.is(Sabotage::TellsTheUnexpectedFirst) => {
                let record = self.store.read(&grant.key).await?;
                if record.is_some_and(|record| !change.fits(&record.attributes)) {
                    return Ok(Written::Unexpected);
                }
            }
            _ => self.applied.lock().unwrap().push(change.clone()),
        }
        if self.is(Sabotage::UpdateExtends) {
            self.store.heartbeat(grant, self.high_beat()).await?;
        }
        Ok(written)
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        self.amend(&grant.key, |known| {
            known.ended = true;
            known.kept_for = Some(KeptFor::OneLessee);
        });
        if self.is(Sabotage::TransfersInSilence) {
            self.silent.store(true, Ordering::SeqCst);
        }
        let to = if self.is(Sabotage::TransfersToItself) { &grant.lessee } else { to };
        self.store.transfer(grant, to, reserved).await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        self.amend(&grant.key, |known| known.ended = true);
        let written = self.store.delete(grant).await?;
        if let (Written::Lost(_), true) = (written, self.is(Sabotage::DeleteIsNotFenced))
            && let Some(known) = self.known(&grant.key)
        {
            return self.store.delete(&known.grant).await;
        }
        Ok(written)
    }
}

fn expecting<'a>(
    change: &'a Change,
    expected: impl IntoIterator<Item = (&'a str, Option<&'a Value>)>,
) -> Change {
    let mut other = Change::new();
    for (name, value) in change.assigned() {
        other = other.set(name, value.clone());
    }
    for name in change.removed() {
        other = other.remove(name);
    }
    for (name, value) in expected {
        other = match value {
            Some(value) => other.expecting(name, value.clone()),
            None => other.expecting_none(name),
        };
    }
    other
}
