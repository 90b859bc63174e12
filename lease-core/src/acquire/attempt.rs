//! One attempt at a key: it asks once, answers the caller, and clears up after itself.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, Span, debug};

use crate::attributes::Attributes;
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::grant::{Beat, Claim, Grant, Heartbeat, Holder, Obtained};
use crate::home::Home;
use crate::key::LeaseKey;
use crate::lease::{GrantedLease, Lease};
use crate::nonce::Nonce;
use crate::outstanding::Errand;
use crate::retry::{Pauses, within};
use crate::settings::Settings;
use crate::unsettled::{Clearing, Unsettled, UnsettledClaims};

/// What an attempt to obtain a key came to.
#[derive(Debug)]
#[must_use = "a lease that is dropped is released: bind it to a name, since `let _ =` drops it"]
#[expect(clippy::exhaustive_enums, reason = "a key is obtained or held: match on both")]
pub enum Attempt {
    /// The key is yours for as long as you keep this.
    Obtained(Lease),
    /// Somebody else has it, or another task of yours: leases are not re-entrant.
    Held(Holder),
}

impl Attempt {
    /// The lease, if the key was obtained.
    pub fn lease(self) -> Option<Lease> {
        match self {
            Self::Obtained(lease) => Some(lease),
            Self::Held(_) => None,
        }
    }
}

/// What is asked of the store.
pub(crate) enum Ask {
    Obtain(LeaseKey),
    Adopt(Grant),
}

impl Ask {
    fn key(&self) -> &LeaseKey {
        match self {
            Self::Obtain(key) => key,
            Self::Adopt(grant) => &grant.key,
        }
    }

    /// The grant that is to be adopted.
    fn adopted(&self) -> Option<Nonce> {
        match self {
            Self::Obtain(_) => None,
            Self::Adopt(grant) => Some(grant.nonce),
        }
    }
}

/// Makes one attempt. May be dropped at any time: what is granted meanwhile is released.
///
/// An attempt whose outcome stayed unclear goes on with the next one: the same claim is made
/// again, so that a key which was granted without our knowing is recognised as ours.
pub(crate) async fn attempt(
    settings: &Arc<Settings>,
    home: &Home,
    unsettled: &Arc<UnsettledClaims>,
    ask: Ask,
) -> Result<Attempt, StoreError> {
    let now = settings.clock.now();
    let ttl = settings.options.ttl();
    if settings.trusted(ttl) < settings.options.heartbeat_period() {
        return Err(StoreError::new(
            StoreErrorKind::Misconfigured,
            format!("a ttl of {ttl:?} is too short for this store, whose clock is coarse"),
        ));
    }
    let earlier = unsettled.take(ask.key(), ask.adopted());
    let taken_over = earlier.as_ref().map(|earlier| Arc::clone(&earlier.clearing));
    let Unsettled { claim, first_sent, beat, .. } = match earlier {
        Some(earlier) => earlier,
        None => Unsettled {
            claim: Claim::new(
                ask.key().clone(),
                settings.lessee.clone(),
                settings.random.nonce()?,
                ttl,
            ),
            first_sent: now,
            beat: Beat::GRANTED,
            adopts: ask.adopted(),
            clearing: Arc::default(),
        },
    };

    let attempting = Attempting {
        settings: Arc::clone(settings),
        home: home.clone(),
        unsettled: Arc::clone(unsettled),
        ask,
        claim,
        first_sent,
        began: now,
        beat,
        taken_over,
        clearing: Arc::default(),
    };
    home.see_through(attempting.settle().instrument(Span::current())).await
}

struct Attempting {
    settings: Arc<Settings>,
    home: Home,
    unsettled: Arc<UnsettledClaims>,
    ask: Ask,
    claim: Claim,
    first_sent: Moment,
    /// When the caller's attempt began.
    began: Moment,
    /// The number of the last heartbeat that was sent under the claim.
    beat: Beat,
    /// Who cleared up after an earlier attempt.
    taken_over: Option<Arc<Clearing>>,
    clearing: Arc<Clearing>,
}

impl Attempting {
    async fn settle(mut self) -> Result<Attempt, StoreError> {
        if let Some(earlier) = self.taken_over.take() {
            earlier.take_over().await;
        }
        let error = match self.free_and_ask().await {
            Ok(settled) => return self.answer(settled),
            Err(error) => error,
        };
        if error.is_retryable() {
            // Before the caller hears: it may ask again at once, and goes on with this claim.
            self.unsettled.put(Unsettled {
                claim: self.claim.clone(),
                first_sent: self.first_sent,
                beat: self.beat,
                adopts: self.ask.adopted(),
                clearing: Arc::clone(&self.clearing),
            });
            let (home, errand) = (self.home.clone(), self.home.errand());
            home.run(self.clear_up(errand).instrument(Span::current()));
        }
        Err(error)
    }

    /// Asks again with the same nonce, until it is known whether the key was granted, or a ttl has passed
    /// since the caller's attempt; ends at once where a new attempt takes over the claim.
    ///
    /// To know that, the key may have to be granted, and is then released: only that makes the
    /// store refuse what may still be on its way. An adoption is not repeated by itself: it would
    /// use up the hand-over, which the caller may want to resume again.
    async fn clear_up(self, _errand: Errand) {
        let settings = Arc::clone(&self.settings);
        let clearing = Arc::clone(&self.clearing);
        let gives_up = self.began + self.claim.ttl;
        let limit = settings.options.request_timeout();
        let mut pauses = Pauses::new(&settings.options, &settings.random);
        // Whoever asks again has this long to do so.
        let patience = (settings.options.heartbeat_period() / 4).min(Pauses::LONGEST);
        let mut next = settings.clock.now() + patience;
        loop {
            let repeats = matches!(self.ask, Ask::Obtain(_)) && next < gives_up;
            let moment = if repeats { next } else { gives_up };
            let slept = clearing.sleep_until(&*settings.clock, moment, limit).await;
            if slept.is_none() {
                return;
            }
            if !repeats {
                self.unsettled.remove(&self.claim);
                return;
            }
            if !self.unsettled.contains(&self.claim) {
                return;
            }
            let Some(answer) = clearing.unless_taken_over(self.ask()).await else { return };
            match answer {
                Ok(obtained) => {
                    // Unless somebody has taken over meanwhile, who then has the same answer.
                    if self.unsettled.remove(&self.claim) {
                        // A lease for nobody: it is released.
                        let now = settings.clock.now();
                        drop(self.answer(Settled::from(obtained, now)));
                    }
                    return;
                }
                Err(error) if !error.is_retryable() => {
                    self.unsettled.remove(&self.claim);
                    return;
                }
                Err(_unclear) => next = settings.clock.now() + pauses.next(),
            }
        }
    }

    async fn ask(&self) -> Result<Obtained, StoreError> {
        let store = &self.settings.store;
        let limit = self.settings.options.request_timeout();
        let answer = match &self.ask {
            Ask::Obtain(_) => within(limit, store.obtain(&self.claim)).await,
            Ask::Adopt(grant) => within(limit, store.adopt(grant, &self.claim)).await,
        };
        answer.inspect_err(|error| {
            debug!(
                key = %self.claim.key, lessee = %self.claim.lessee, error = error as &dyn Error,
                "attempt without an answer"
            );
        })
    }

    /// Asks for the key; under a new nonce where the claim is old.
    ///
    /// Requests for an old claim may lie in a socket: a grant of it would be nobody's for a ttl. So it is
    /// released before the new claim is sent. It is not used: some votes of a quorum for it may have run
    /// out before others came, and another claim may have been granted a larger token in between. A
    /// heartbeat would not show that.
    async fn free_and_ask(&mut self) -> Result<Settled, StoreError> {
        let settings = Arc::clone(&self.settings);
        let is_old = self.began.since(self.first_sent) >= self.claim.ttl / 2;
        if is_old {
            // An adoption uses up the hand-over: the old one is left to run out.
            if matches!(self.ask, Ask::Obtain(_))
                && let Obtained::Granted(grant, _) = self.ask().await?
            {
                let limit = settings.options.request_timeout();
                within(limit, settings.store.release(&grant, None)).await?;
            }
            self.claim.nonce = settings.random.nonce()?;
            self.first_sent = settings.clock.now();
            self.beat = Beat::GRANTED;
        }
        self.ask_and_confirm().await
    }

    /// Asks for the key, and for a heartbeat if too little may be left of what was granted.
    ///
    /// The grant may be that of the first request, which may have been served then or just now. A heartbeat
    /// tells that it stands, and lasts for a ttl from before the heartbeat was sent.
    async fn ask_and_confirm(&mut self) -> Result<Settled, StoreError> {
        let obtained = self.ask().await?;
        let (settings, asked) = (Arc::clone(&self.settings), self.first_sent);
        let sent = settings.clock.now();
        let Obtained::Granted(grant, attributes) = obtained else {
            return Ok(Settled::from(obtained, asked));
        };
        if sent.since(asked) < grant.ttl / 2 {
            return Ok(Settled::Granted(grant, attributes, asked));
        }
        self.beat = self.beat.next();
        let limit = settings.options.request_timeout();
        match within(limit, settings.store.heartbeat(&grant, self.beat)).await? {
            Heartbeat::Extended => Ok(Settled::Granted(grant, attributes, sent)),
            Heartbeat::Overtaken => {
                Err(StoreError::new(StoreErrorKind::Unavailable, "overtaken by a later heartbeat"))
            }
            Heartbeat::Lost(_cause) => Ok(Settled::TooLate),
        }
    }

    fn answer(&self, settled: Settled) -> Result<Attempt, StoreError> {
        let too_late = "the key was granted too late to be of use";
        let too_late = StoreError::new(StoreErrorKind::Unavailable, too_late);
        let (grant, attributes, sure_from) = match settled {
            Settled::Granted(grant, attributes, sure_from) => (grant, attributes, sure_from),
            Settled::Held(holder) => return Ok(Attempt::Held(holder)),
            Settled::TooLate => return Err(too_late),
        };
        let deadline = sure_from + self.settings.trusted(grant.ttl);
        let lease = Lease::new(
            &self.settings,
            &self.home,
            GrantedLease { grant, attributes, granted_at: sure_from, deadline, beat: self.beat },
        );
        if lease.remaining() == Duration::ZERO {
            // Dropped here, and so released.
            return Err(too_late);
        }
        Ok(Attempt::Obtained(lease))
    }
}

/// What the store has said for sure.
enum Settled {
    /// Granted, and for a ttl from this moment on at least.
    Granted(Grant, Attributes, Moment),
    Held(Holder),
    /// Granted, and run out since.
    TooLate,
}

impl Settled {
    fn from(obtained: Obtained, sure_from: Moment) -> Self {
        match obtained {
            Obtained::Granted(grant, attributes) => Self::Granted(grant, attributes, sure_from),
            Obtained::Held(holder) => Self::Held(holder),
        }
    }
}
