//! A store with one injected bug, and the state that the bug needs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lease_core::conformance::{Fixture, Reopened};
use lease_core::store::{Beat, Claim, Grant, LockStore, Nonce, Obtained};
use lease_core::{Change, FencingToken, LeaseKey, StoreError};
use lease_memory::MemoryStore;
use tokio::sync::oneshot;
use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    GrantsTwice,
    GrantsOneLesseeTwice,
    ForgetsTheToken,
    ForgetsTheTokenOnExpiry,
    KeepsTheTokenOnAdoption,
    IgnoresTheNonceOnRelease,
    RegrantsAReleasedNonce,
    /// No bug: the fixture reports that the store forgets released nonces.
    ForgetsReleasedNonces,
    RegrantsUnderTheSameToken,
    /// A claim whose grant has expired is refused in the name of another lessee.
    NamesTheLesseeBefore,
    /// A claim whose grant was released is refused in the name of a later lessee.
    NamesTheLesseeAfter,
    ExtendsWhatWasReleased,
    /// In a batch, each claim gets the answer to the next claim.
    AnswersTheWrongClaim,
    /// If the reply to a batch is lost, the store answers that it refused the claims.
    CallsALostBatchRefused,
    HeartbeatIgnoresItsTtl,
    LateHeartbeatShortens,
    LateHeartbeatIsCalledALoss,
    HeartbeatRevives,
    ExtendsOnRepeatedClaim,
    AdoptsTwice,
    AdoptsWhatWasReleased,
    IgnoresReservations,
    ReleasesInSilence,
    UpdateIsNotFenced,
    UpdateIgnoresTheToken,
    UpdateExtends,
    TransfersToItself,
    DeleteIsNotFenced,
    CreateOverwrites,
    ListsOtherPrefixes,
    NamesTheRepeatedRequest,
    EvictsByKeyAlone,
    EvictsNoHolderOfARecord,
    ScansOtherPrefixes,
    ScansNoRecords,
    EvictionFreesAtOnce,
    AdoptsWhatWasEvicted,
    TellsOfExpiredHolders,
    AdoptionKeepsTheOldExpiry,
    AdoptionForgetsAttributes,
    UpdatesWhatHasExpired,
    ExpectsTheFirstAlone,
    ExpectsTextAlone,
    IgnoresWhatIsExpectedAbsent,
    RepeatsWhatItHasApplied,
    TellsTheUnexpectedFirst,
    TransfersInSilence,
    BatchHasAnEnd,
    GrantKeepsTheBeat,
    AdoptionKeepsTheBeat,
    TellsOfReservations,
    TellsOfTransfers,
    DropsAttributesOfClaims,
    ReturnsAttributesFromBefore,
    ForgetsAttributesOfClaims,
    RefusedClaimSetsAttributes,
    RepeatedClaimSetsAttributes,
    AdoptionDropsAttributes,
    RefusedAdoptionSetsAttributes,
    RepeatedAdoptionSetsAttributes,
    GrantsTheLastFirst,
    LetsPlainClaimsOvertake,
    GrantsTheDead,
    RenewalMovesToTheEnd,
    ForgetsThatWaitersLeft,
    LeavingKeepsTheGrant,
    NamesTheFirstRequest,
    RenewalIgnoresExpiry,
    KeepsLateGrantsForEver,
    RenewalJoinsTheQueue,
}

type PendingClaim = (Claim, oneshot::Sender<Obtained>);

#[derive(Debug, Clone)]
pub(crate) struct Sabotaged {
    pub(crate) store: MemoryStore,
    pub(crate) sabotage: Sabotage,
    known: Arc<Mutex<HashMap<LeaseKey, Known>>>,
    pub(crate) applied: Arc<Mutex<Vec<Change>>>,
    beats: Arc<AtomicU64>,
    batch: Arc<Mutex<Vec<PendingClaim>>>,
    pub(crate) silent: Arc<AtomicBool>,
    pub(crate) waiting: Arc<Mutex<Vec<Claim>>>,
    pub(crate) left: Arc<Mutex<Vec<Nonce>>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) grant: Grant,
    pub(crate) token: FencingToken,
    pub(crate) granted_at: tokio::time::Instant,
    pub(crate) released: bool,
    pub(crate) ended: bool,
    pub(crate) adopted: Option<Nonce>,
    pub(crate) beat: Option<Beat>,
    pub(crate) kept_for: Option<KeptFor>,
    pub(crate) set_attributes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeptFor {
    Later,
    OneLessee,
}

impl Sabotage {
    fn forgets_released_nonces(self) -> bool {
        matches!(
            self,
            Self::ForgetsReleasedNonces
                | Self::RegrantsUnderTheSameToken
                | Self::ExtendsWhatWasReleased
        )
    }
}

#[async_trait]
impl Fixture for Sabotage {
    type Store = Sabotaged;

    async fn store(&self) -> Sabotaged {
        Sabotaged {
            store: MemoryStore::counting_from_one(),
            sabotage: *self,
            known: Arc::default(),
            applied: Arc::default(),
            beats: Arc::default(),
            batch: Arc::default(),
            silent: Arc::default(),
            waiting: Arc::default(),
            left: Arc::default(),
        }
    }

    async fn another(&self, store: &Sabotaged) -> Sabotaged {
        store.clone()
    }

    /// The underlying store outlives its handles, like a server.
    async fn reopen(&self, store: Sabotaged) -> Reopened<Sabotaged> {
        Reopened::Intact(store)
    }

    fn remembers_released_nonces(&self) -> bool {
        !self.forgets_released_nonces()
    }

    fn time_may_be_paused(&self) -> bool {
        true
    }
}

impl Sabotaged {
    pub(crate) fn is(&self, sabotage: Sabotage) -> bool {
        self.sabotage == sabotage
    }

    pub(crate) fn batches_claims(&self) -> bool {
        self.is(Sabotage::AnswersTheWrongClaim) || self.is(Sabotage::CallsALostBatchRefused)
    }

    /// The bug needs two claims in a batch, so this sends all simultaneous claims together.
    pub(crate) async fn obtain_in_batch(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.batch.lock().unwrap().push((claim.clone(), answer));
        tokio::task::yield_now().await;
        let batch = std::mem::take(&mut *self.batch.lock().unwrap());
        let mut answers = Vec::new();
        for (claim, _) in &batch {
            answers.push(self.store.obtain(claim).await?);
        }
        if self.is(Sabotage::AnswersTheWrongClaim) && !answers.is_empty() {
            answers.rotate_left(1);
        }
        let is_lost = self.is(Sabotage::CallsALostBatchRefused) && batch.len() > 1;
        for ((claim, answer), reply) in batch.into_iter().zip(answers) {
            let reply = match reply {
                Obtained::Granted(grant, _) if is_lost => Obtained::Held(grant.holder(None)),
                Obtained::Granted(grant, attributes) => {
                    Obtained::Granted(claim.granted_to(grant.request, grant.token), attributes)
                }
                held @ Obtained::Held(_) => held,
            };
            // The caller of the claim may have been dropped.
            drop(answer.send(reply));
        }
        Ok(answered.await.unwrap())
    }

    pub(crate) fn regrants_released_nonces(&self) -> bool {
        self.is(Sabotage::RegrantsAReleasedNonce) || self.sabotage.forgets_released_nonces()
    }

    pub(crate) fn known(&self, key: &LeaseKey) -> Option<Known> {
        self.known.lock().unwrap().get(key).cloned()
    }

    pub(crate) fn learn(&self, grant: &Grant, token: FencingToken) {
        let known = Known {
            grant: grant.clone(),
            token,
            granted_at: now(),
            released: false,
            ended: false,
            adopted: None,
            beat: self.known(&grant.key).and_then(|known| known.beat),
            kept_for: None,
            set_attributes: false,
        };
        self.known.lock().unwrap().insert(grant.key.clone(), known);
    }

    /// The underlying store's token, because the bug may have returned another token.
    pub(crate) fn as_granted(&self, grant: &Grant) -> Grant {
        let mut grant = grant.clone();
        if let Some(known) = self.known(&grant.key).filter(|known| known.grant == grant) {
            grant.token = known.token;
        }
        grant
    }

    pub(crate) fn amend(&self, key: &LeaseKey, amend: impl FnOnce(&mut Known)) {
        if let Some(known) = self.known.lock().unwrap().get_mut(key) {
            amend(known);
        }
    }

    pub(crate) fn high_beat(&self) -> Beat {
        Beat::new(1_000_000 + self.beats.fetch_add(1, Ordering::SeqCst))
    }

    pub(crate) fn fresh(claim: &Claim) -> Claim {
        let nonce = Nonce::new(Uuid::from_u128(!claim.nonce.get().as_u128()));
        Claim::new(claim.key.clone(), claim.lessee.clone(), nonce, claim.ttl)
    }
}

pub(crate) fn first_token() -> FencingToken {
    FencingToken::new(1).unwrap()
}

pub(crate) fn now() -> tokio::time::Instant {
    #[expect(clippy::disallowed_methods, reason = "a saboteur's clock")]
    tokio::time::Instant::now()
}
