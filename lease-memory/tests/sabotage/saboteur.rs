//! A store with one injected bug, and the state that the bug needs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lease_core::conformance::{Fixture, Reopened};
use lease_core::store::{Beat, Claim, Grant, Nonce};
use lease_core::{Change, FencingToken, LeaseKey};
use lease_memory::MemoryStore;
use uuid::Uuid;

/// The injected bug. Each is a plausible mistake of one line.
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
}

/// Clones share the store and the state.
#[derive(Debug, Clone)]
pub(crate) struct Sabotaged {
    pub(crate) store: MemoryStore,
    pub(crate) sabotage: Sabotage,
    known: Arc<Mutex<HashMap<LeaseKey, Known>>>,
    /// The applied changes.
    pub(crate) applied: Arc<Mutex<Vec<Change>>>,
    beats: Arc<AtomicU64>,
    pub(crate) silent: Arc<AtomicBool>,
}

/// The state of a key that bugs need.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// The last grant that was returned.
    pub(crate) grant: Grant,
    /// The token in the sound store.
    pub(crate) token: FencingToken,
    pub(crate) granted_at: tokio::time::Instant,
    /// Whether the grant was released.
    pub(crate) released: bool,
    /// Whether the grant ended before its expiry.
    pub(crate) ended: bool,
    pub(crate) adopted: Option<Nonce>,
    /// The last applied heartbeat of the key, of any grant.
    pub(crate) beat: Option<Beat>,
    pub(crate) kept_for: Option<KeptFor>,
    /// Whether the claim had attributes.
    pub(crate) set_attributes: bool,
}

/// Why a key without a holder is not free.
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

    /// The memory store outlives its handles, like a server.
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
            set_attributes: false,
        };
        self.known.lock().unwrap().insert(grant.key.clone(), known);
    }

    /// Returns the grant with the store's token: the bug may have returned another one.
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

    /// Returns a beat that no regular heartbeat reaches.
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
