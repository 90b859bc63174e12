//! Who breaks a store, and what it remembers for that.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lease_core::conformance::{Fixture, Reopened};
use lease_core::{Beat, Change, Claim, FencingToken, Grant, LeaseKey, Nonce};
use lease_memory::MemoryStore;
use uuid::Uuid;

/// What is broken. Each is one careless line in somebody's store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    GrantsTwice,
    GrantsOneLesseeTwice,
    ForgetsTheToken,
    ForgetsTheTokenOnExpiry,
    KeepsTheTokenOnAdoption,
    IgnoresTheNonceOnRelease,
    RegrantsAReleasedNonce,
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
    EvictsByKeyAlone,
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
}

/// Clones share the store, and what is remembered of it.
#[derive(Debug, Clone)]
pub(crate) struct Sabotaged {
    pub(crate) store: MemoryStore,
    pub(crate) sabotage: Sabotage,
    known: Arc<Mutex<HashMap<LeaseKey, Known>>>,
    /// The changes that were applied.
    pub(crate) applied: Arc<Mutex<Vec<Change>>>,
    beats: Arc<AtomicU64>,
    pub(crate) silent: Arc<AtomicBool>,
}

/// What the saboteur remembers of a key, to put it to bad use.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// The grant that was answered last.
    pub(crate) grant: Grant,
    /// The store's own.
    pub(crate) token: FencingToken,
    pub(crate) granted_at: tokio::time::Instant,
    /// Whether it was released.
    pub(crate) released: bool,
    /// Whether it ended otherwise than by expiry.
    pub(crate) ended: bool,
    pub(crate) adopted: Option<Nonce>,
    /// The last heartbeat that was applied to the key, whatever its grant.
    pub(crate) beat: Option<Beat>,
    pub(crate) kept_for: Option<KeptFor>,
}

/// For what a key that nobody holds is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeptFor {
    Later,
    OneLessee,
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
            silent: Arc::default(),
        }
    }

    async fn another(&self, store: &Sabotaged) -> Sabotaged {
        store.clone()
    }

    /// The memory store outlives its handles, as a server does.
    async fn reopen(&self, store: Sabotaged) -> Reopened<Sabotaged> {
        Reopened::Intact(store)
    }

    fn time_may_be_paused(&self) -> bool {
        true
    }
}

impl Sabotaged {
    pub(crate) fn is(&self, sabotage: Sabotage) -> bool {
        self.sabotage == sabotage
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
        };
        self.known.lock().unwrap().insert(grant.key.clone(), known);
    }

    /// The grant as the store knows it: a sabotage may have told another token.
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

    /// A beat that no honest heartbeat has reached.
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
