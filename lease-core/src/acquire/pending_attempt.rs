//! One attempt to obtain a key: sends one claim, returns the answer, and cleans up after a failure.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, Span, debug};

use crate::acquire::attempt::Attempt;
use crate::acquire::unsettled::{ClaimCleanup, ClaimRequests, UnsettledClaim, UnsettledClaims};
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::heartbeat::locker_runtime::LockerRuntime;
use crate::key::LeaseKey;
use crate::lease::{GrantedLease, Lease};
use crate::metrics::StoreOperation;
use crate::runtime::requests_in_flight::RequestGuard;
use crate::session::attempt::{attempt_under, take_over};
use crate::settings::Settings;
use crate::settings::backoff::Pauses;
use crate::store::attributes::Attributes;
use crate::store::grant::{Beat, Claim, Grant, Heartbeat, Holder, Obtained};
use crate::store::nonce::Nonce;

pub(crate) enum Request {
    Obtain(LeaseKey),
    Adopt(Grant),
}

impl Request {
    fn key(&self) -> &LeaseKey {
        match self {
            Self::Obtain(key) => key,
            Self::Adopt(grant) => &grant.key,
        }
    }

    fn adopted(&self) -> Option<Nonce> {
        match self {
            Self::Obtain(_) => None,
            Self::Adopt(grant) => Some(grant.nonce),
        }
    }
}

/// Makes one attempt. A key that is granted after the caller has dropped the attempt is released. `now` is a reading
/// of the clock before the call.
///
/// If the outcome of an attempt is unknown, the next attempt repeats its claim. See
/// docs/design/002-nonces-and-unsettled-claims.md.
pub(crate) async fn attempt(
    settings: &Arc<Settings>,
    runtime: &LockerRuntime,
    unsettled: &Arc<UnsettledClaims>,
    ask: Request,
    now: Moment,
) -> Result<Attempt, StoreError> {
    if let (Some(session), Request::Obtain(key)) = (&settings.session, &ask) {
        return attempt_under(settings, runtime, session, key.clone(), now).await;
    }
    let ttl = settings.options.ttl();
    if settings.trusted(ttl) < settings.options.heartbeat_period() {
        return Err(StoreError::new(
            StoreErrorKind::Misconfigured,
            format!("a ttl of {ttl:?} is too short for this store, whose clock is coarse"),
        ));
    }
    let earlier = unsettled.take(ask.key(), ask.adopted(), now);
    let taken_over = earlier.as_ref().map(|earlier| Arc::clone(&earlier.clearing));
    let unsettled_claim = match earlier {
        Some(earlier) => earlier,
        None => new_claim(settings, &ask, now)?,
    };
    let UnsettledClaim { claim, first_sent, requests, beat, kept_since, .. } = unsettled_claim;

    let attempting = PendingAttempt {
        settings: Arc::clone(settings),
        runtime: runtime.clone(),
        unsettled: Arc::clone(unsettled),
        ask,
        claim,
        first_sent,
        requests,
        began: now,
        sent: now,
        answered: None,
        beat,
        kept_since,
        taken_over,
        clearing: Arc::default(),
    };
    let (key, is_adoption) = (attempting.claim.key.clone(), attempting.ask.adopted().is_some());
    // In a box, because the state of this future is large and would be moved several times.
    match runtime.run_to_end(Box::pin(attempting.settle().instrument(Span::current()))).await? {
        Attempt::Held(holder) if holder.parent.is_some() && !is_adoption => {
            Box::pin(take_over(settings, runtime, holder, key, now)).await
        }
        answer => Ok(answer),
    }
}

fn new_claim(
    settings: &Settings,
    ask: &Request,
    now: Moment,
) -> Result<UnsettledClaim, StoreError> {
    let (key, lessee) = (ask.key().clone(), settings.lessee.clone());
    let claim = Claim::new(key, lessee, settings.random.nonce()?, settings.options.ttl());
    Ok(UnsettledClaim {
        claim: claim.with_attributes(settings.attributes.clone()),
        first_sent: now,
        requests: Arc::default(),
        beat: Beat::GRANTED,
        adopts: ask.adopted(),
        clearing: Arc::default(),
        kept_since: None,
    })
}

struct PendingAttempt {
    settings: Arc<Settings>,
    runtime: LockerRuntime,
    unsettled: Arc<UnsettledClaims>,
    ask: Request,
    claim: Claim,
    first_sent: Moment,
    requests: Arc<ClaimRequests>,
    began: Moment,
    sent: Moment,
    /// When the last request was answered, if the clock was read then.
    answered: Option<Moment>,
    beat: Beat,
    /// When the claim that this attempt repeats was first refused, if ever.
    kept_since: Option<Moment>,
    /// The cleanup of the earlier attempt whose claim this attempt repeats.
    taken_over: Option<Arc<ClaimCleanup>>,
    clearing: Arc<ClaimCleanup>,
}

impl PendingAttempt {
    async fn settle(mut self) -> Result<Attempt, StoreError> {
        if let Some(earlier) = self.taken_over.take() {
            earlier.take_over().await;
        }
        let error = match self.ask_and_confirm().await {
            Ok(Settled::Held(holder)) => {
                if self.requests.has_unanswered() {
                    // The store may still grant an earlier request, so the next attempt must use
                    // the same nonce.
                    let now = self.settings.clock.now();
                    let since = self.kept_since.unwrap_or(now);
                    self.unsettled.keep(self.unsettled_claim(Some(since)), now);
                }
                return Ok(Attempt::Held(holder));
            }
            Ok(settled) => return self.answer(settled),
            Err(error) => error,
        };
        if error.is_retryable() {
            // Stored before the caller gets the error: the caller's next attempt must repeat this claim.
            self.unsettled.put(self.unsettled_claim(self.kept_since));
            let (runtime, guard) = (self.runtime.clone(), self.runtime.request_guard());
            runtime.spawn(self.clear_up(guard).instrument(Span::current()));
        }
        Err(error)
    }

    fn unsettled_claim(&self, kept_since: Option<Moment>) -> UnsettledClaim {
        UnsettledClaim {
            claim: self.claim.clone(),
            first_sent: self.first_sent,
            requests: Arc::clone(&self.requests),
            beat: self.beat,
            adopts: self.ask.adopted(),
            clearing: Arc::clone(&self.clearing),
            kept_since,
        }
    }

    /// Repeats the claim until its outcome is known, a ttl has passed, or a new attempt takes over
    /// the claim.
    ///
    /// The cleanup releases a key that a repetition obtains. An adoption is not repeated, because a
    /// repetition would use up the hand-over.
    async fn clear_up(mut self, _guard: RequestGuard) {
        let settings = Arc::clone(&self.settings);
        let clearing = Arc::clone(&self.clearing);
        let gives_up = self.began + self.claim.ttl;
        let limit = settings.options.request_timeout();
        let mut pauses = Pauses::new(&settings.options, &settings.random);
        let patience = (settings.options.heartbeat_period() / 4).min(Pauses::LONGEST);
        let mut next = settings.clock.now() + patience;
        loop {
            let repeats = matches!(self.ask, Request::Obtain(_)) && next < gives_up;
            let moment = if repeats { next } else { gives_up };
            let slept = clearing.sleep_until(&*settings.clock, moment, limit).await;
            if slept.is_none() {
                return;
            }
            if !repeats {
                self.unsettled.remove(&self.claim);
                return;
            }
            if !self.unsettled.contains(&self.claim) && !clearing.releases_late_grant() {
                return;
            }
            let Some(answer) = clearing.unless_taken_over(self.ask()).await else { return };
            match answer {
                Ok(obtained) => {
                    // If another attempt has taken over the claim, that attempt gets the same answer.
                    if self.unsettled.remove(&self.claim) || clearing.releases_late_grant() {
                        // No caller waits for this lease: the drop releases the key.
                        if let Obtained::Granted(grant, attributes) = obtained {
                            let now = settings.clock.now();
                            drop(self.lease(grant, attributes, now, now));
                        }
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

    async fn ask(&mut self) -> Result<Obtained, StoreError> {
        self.claim.request = self.requests.next();
        self.sent = self.settings.clock.now();
        let (settings, store, sent) = (&self.settings, &self.settings.store, self.sent);
        let (answer, answered) = match &self.ask {
            Request::Obtain(_) => {
                settings.ask_at(sent, StoreOperation::Obtain, store.obtain(&self.claim)).await
            }
            Request::Adopt(grant) => {
                let adopted = store.adopt(grant, &self.claim);
                settings.ask_at(sent, StoreOperation::Adopt, adopted).await
            }
        };
        self.answered = answered;
        match answer {
            Ok(obtained) => {
                self.requests.answered();
                Ok(obtained)
            }
            Err(error) => {
                debug!(
                    key = %self.claim.key, lessee = %self.claim.lessee, error = &error as &dyn Error,
                    "attempt failed"
                );
                Err(error)
            }
        }
    }

    /// Sends a request, and finds out from which moment a grant lasts for a ttl. If an earlier request was
    /// granted, a heartbeat shows whether the grant still holds the key.
    async fn ask_and_confirm(&mut self) -> Result<Settled, StoreError> {
        let (grant, attributes) = match self.ask().await? {
            // In a box, since this case is rare.
            Obtained::Held(holder) if self.is_spent(&holder) => {
                return Box::pin(self.ask_anew()).await;
            }
            Obtained::Held(holder) => return Ok(Settled::Held(holder)),
            Obtained::Granted(grant, attributes) => (grant, attributes),
        };
        match grant.request {
            Some(request) if request == self.claim.request => {
                Ok(Settled::Granted(grant, attributes, self.sent))
            }
            Some(_earlier) => Box::pin(self.confirm(grant, attributes, None)).await,
            None => Box::pin(self.settle_unnumbered(grant, attributes)).await,
        }
    }

    /// Handles a grant of an earlier request whose number the store does not know.
    ///
    /// The first request may have made the grant, so the ttl counts from before the first request.
    /// Only a heartbeat that is answered within this ttl extends the grant. A later answer proves
    /// only that the store knows the nonce: another claim may have held the key in between.
    ///
    /// If half of the ttl had passed when the attempt began, the grant is released, and a new nonce claims
    /// the key. An old adoption is left to expire, because another adoption would use up the hand-over.
    async fn settle_unnumbered(
        &mut self,
        grant: Grant,
        attributes: Attributes,
    ) -> Result<Settled, StoreError> {
        let (settings, half) = (Arc::clone(&self.settings), grant.ttl / 2);
        if self.began.since(self.first_sent) >= half {
            if matches!(self.ask, Request::Obtain(_)) {
                settings.ask(StoreOperation::Release, settings.store.release(&grant, None)).await?;
            }
            return self.ask_anew().await;
        }
        let deadline = self.first_sent + settings.trusted(grant.ttl);
        let now = settings.clock.now();
        if now.since(self.first_sent) < half || now >= deadline {
            return Ok(Settled::Granted(grant, attributes, self.first_sent));
        }
        self.confirm(grant, attributes, Some(deadline)).await
    }

    /// Whether `holder` names a grant of this claim that has ended: its answer was lost, and the store refuses the
    /// nonce for as long as it remembers this grant.
    fn is_spent(&self, holder: &Holder) -> bool {
        matches!(self.ask, Request::Obtain(_))
            && self.requests.has_unanswered()
            && holder.expires_in == Some(Duration::ZERO)
            && holder.lessee == self.claim.lessee
    }

    /// Claims the key under a new nonce. A late request under the former nonce may hold the key for one ttl.
    async fn ask_anew(&mut self) -> Result<Settled, StoreError> {
        self.claim.nonce = self.settings.random.nonce()?;
        self.requests = Arc::default();
        self.first_sent = self.settings.clock.now();
        self.beat = Beat::GRANTED;
        self.kept_since = None;
        Ok(match self.ask().await? {
            Obtained::Held(holder) => Settled::Held(holder),
            Obtained::Granted(grant, attributes) => {
                Settled::Granted(grant, attributes, self.first_sent)
            }
        })
    }

    /// The lease counts from this heartbeat if the answer arrives before `deadline`.
    async fn confirm(
        &mut self,
        grant: Grant,
        attributes: Attributes,
        deadline: Option<Moment>,
    ) -> Result<Settled, StoreError> {
        let settings = Arc::clone(&self.settings);
        let sent = settings.clock.now();
        self.beat = self.beat.next();
        // The grant may end before this heartbeat is answered, so `answer` must read the clock again.
        self.answered = None;
        match settings
            .ask(StoreOperation::Heartbeat, settings.store.heartbeat(&grant, self.beat))
            .await?
        {
            Heartbeat::Extended
                if deadline.is_none_or(|deadline| settings.clock.now() < deadline) =>
            {
                Ok(Settled::Granted(grant, attributes, sent))
            }
            // The method `answer` releases this grant, because its deadline has passed.
            Heartbeat::Extended => Ok(Settled::Granted(grant, attributes, self.first_sent)),
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
        let now = self.answered.unwrap_or_else(|| self.settings.clock.now());
        if now >= sure_from + self.settings.trusted(grant.ttl) {
            // The lease counts from now, so that the lease is not lost yet. The drop releases the key.
            drop(self.lease(grant, attributes, now, now));
            return Err(too_late);
        }
        Ok(Attempt::Obtained(self.lease(grant, attributes, sure_from, now)))
    }

    fn lease(&self, grant: Grant, attributes: Attributes, sure_from: Moment, now: Moment) -> Lease {
        let deadline = sure_from + self.settings.trusted(grant.ttl);
        let beat = self.beat;
        let granted = GrantedLease { grant, attributes, granted_at: sure_from, deadline, beat };
        Lease::new(&self.settings, &self.runtime, granted).obtained_at(now)
    }
}

enum Settled {
    Granted(Grant, Attributes, Moment),
    Held(Holder),
    /// The grant ended before its answer arrived.
    TooLate,
}
