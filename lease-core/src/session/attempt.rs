//! One attempt to obtain a key under a session, or to take over a key whose session has ended.
//!
//! The attempt reads the record, proves the end of the session that holds the key, and sends one claim. Its
//! first request to arrive decides, so a refused claim needs no cleanup. An unanswered claim is
//! repeated until it is answered, or until its session has ended.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, Span, debug};

use crate::acquire::attempt::Attempt;
use crate::clock::Moment;
use crate::error::{StoreError, StoreErrorKind};
use crate::heartbeat::locker_runtime::LockerRuntime;
use crate::key::LeaseKey;
use crate::lease::{GrantedLease, Lease};
use crate::metrics::StoreOperation;
use crate::runtime::requests_in_flight::RequestGuard;
use crate::session::membership::{Membership, UnsettledChild};
use crate::settings::Settings;
use crate::settings::backoff::Pauses;
use crate::store::attributes::Attributes;
use crate::store::grant::{Beat, Claim, Grant, Holder, Obtained};
use crate::store::lease_table::LeaseRecord;
use crate::store::session::{Ended, Parent, SessionState, Sessions, Vacancy};
use crate::store::time_limit::within;

/// Makes one attempt under the session of a locker. The caller may drop it at any time: a key that is granted
/// afterwards is released.
pub(crate) async fn attempt_under(
    settings: &Arc<Settings>,
    runtime: &LockerRuntime,
    session: &Arc<Membership>,
    key: LeaseKey,
    now: Moment,
) -> Result<Attempt, StoreError> {
    let session = Some(Arc::clone(session));
    let attempt = ChildAttempt::new(settings, runtime, session, key, now);
    runtime.run_to_end(Box::pin(attempt.settle().instrument(Span::current()))).await
}

/// Obtains a key without a session, if the session under which it is held has ended.
pub(crate) async fn take_over(
    settings: &Arc<Settings>,
    runtime: &LockerRuntime,
    holder: Holder,
    key: LeaseKey,
    now: Moment,
) -> Result<Attempt, StoreError> {
    if holder.parent.is_none() || settings.store.sessions().is_none() {
        return Ok(Attempt::Held(holder));
    }
    let attempt = ChildAttempt::new(settings, runtime, None, key, now);
    runtime.run_to_end(Box::pin(attempt.settle().instrument(Span::current()))).await
}

struct ChildAttempt {
    settings: Arc<Settings>,
    runtime: LockerRuntime,
    /// `None` if the lease has a ttl of its own.
    session: Option<Arc<Membership>>,
    key: LeaseKey,
    /// When the last claim was sent, or a reading of the clock before the first claim.
    sent: Moment,
}

/// The result of a look at the key.
enum Looked {
    Vacant(Vacancy),
    Held(Holder),
}

impl ChildAttempt {
    fn new(
        settings: &Arc<Settings>,
        runtime: &LockerRuntime,
        session: Option<Arc<Membership>>,
        key: LeaseKey,
        now: Moment,
    ) -> Self {
        let sent = now;
        Self { settings: Arc::clone(settings), runtime: runtime.clone(), session, key, sent }
    }

    async fn settle(mut self) -> Result<Attempt, StoreError> {
        let mut refusals = 0;
        loop {
            self.refuse_if_over()?;
            let earlier = self.session.as_ref().and_then(|session| session.take(&self.key));
            let mut claim = match earlier {
                Some(earlier) => {
                    earlier.clearing.take_over().await;
                    earlier
                }
                None => match self.look().await? {
                    Looked::Held(holder) => return Ok(Attempt::Held(holder)),
                    Looked::Vacant(vacancy) => self.claim(vacancy)?,
                },
            };
            match self.ask(&mut claim).await {
                Ok(Obtained::Granted(grant, attributes)) => return self.answer(grant, attributes),
                Ok(Obtained::Held(holder)) if refusals == MOST_REFUSALS => {
                    return Ok(Attempt::Held(holder));
                }
                // The key was granted since the look. It may be free again.
                Ok(Obtained::Held(_)) => refusals += 1,
                Err(error) => {
                    self.keep(claim, &error);
                    return Err(error);
                }
            }
        }
    }

    fn refuse_if_over(&self) -> Result<(), StoreError> {
        self.session.as_ref().map_or(Ok(()), |session| session.refuse_if_over())
    }

    fn sessions(&self) -> Result<&dyn Sessions, StoreError> {
        let none = || StoreError::new(StoreErrorKind::Unsupported, "this store keeps no sessions");
        self.settings.store.sessions().ok_or_else(none)
    }

    /// Reads the record of the key. If the lease of the key may be over, proves that it is.
    async fn look(&self) -> Result<Looked, StoreError> {
        let (settings, key) = (&self.settings, &self.key);
        let limit = settings.options.request_timeout();
        let record = within(limit, read(self.sessions()?, key)).await?;
        let vacancy = |ended| Vacancy::seen(key, record.as_ref(), &settings.lessee, ended);
        if let Some(vacancy) = vacancy(None) {
            return Ok(Looked::Vacant(vacancy));
        }
        let Some(record) = &record else { return Err(unexpected()) };
        let last = match self.last_lease(record) {
            Ok(last) => last,
            Err(holder) => return Ok(Looked::Held(holder)),
        };
        match self.prove(&last).await? {
            SessionState::Ended(proof) => {
                let vacancy = vacancy(Some(&proof));
                vacancy.map(Looked::Vacant).ok_or_else(unexpected)
            }
            SessionState::Held(session) => {
                let holder = record.holder.clone().unwrap_or_else(|| session.clone());
                Ok(Looked::Held(Holder { expires_in: session.expires_in, ..holder }))
            }
        }
    }

    /// Returns the lease whose end frees the key: the session of the key's last lease, or that lease itself.
    /// Returns the holder if this lease cannot be over.
    fn last_lease(&self, record: &LeaseRecord) -> Result<Parent, Holder> {
        if let Some(holder) = &record.holder {
            let own = self.session.as_ref().map(|session| &session.parent);
            return match &holder.parent {
                Some(session) if Some(session) != own => Ok(session.clone()),
                // The lease has a ttl, or another task of this locker holds the key.
                _ => Err(holder.clone()),
            };
        }
        match (&record.reserved, record.token) {
            (None, Some(token)) => Ok(Parent::new(self.key.clone(), token)),
            (reserved, _) => {
                let only = reserved.as_ref().and_then(|reserved| reserved.only.clone());
                let lessee = only.unwrap_or_else(|| self.settings.lessee.clone());
                Err(Holder::new(lessee, reserved.as_ref().map(|reserved| reserved.expires_in)))
            }
        }
    }

    /// Proves that `last` has ended, or returns its holder.
    async fn prove(&self, last: &Parent) -> Result<SessionState, StoreError> {
        let known = self.session.as_ref().and_then(|session| session.proof(last));
        if let Some(proof) = known {
            return Ok(SessionState::Ended(proof));
        }
        let (sessions, limit) = (self.sessions()?, self.settings.options.request_timeout());
        // A read costs less than a write that is refused.
        if last.key != self.key
            && let Some(record) = within(limit, read(sessions, &last.key)).await?
        {
            if let Some(proof) = Ended::shown_by(&record, last) {
                return Ok(self.proven(proof));
            }
            let is_over = |holder: &Holder| holder.expires_in == Some(Duration::ZERO);
            if let Some(holder) = record.holder.filter(|holder| !is_over(holder)) {
                return Ok(SessionState::Held(holder));
            }
        }
        match within(limit, sessions.end_session(last)).await? {
            SessionState::Ended(proof) => Ok(self.proven(proof)),
            held @ SessionState::Held(_) => Ok(held),
        }
    }

    fn proven(&self, proof: Ended) -> SessionState {
        if let Some(session) = &self.session {
            session.learn(&proof);
        }
        SessionState::Ended(proof)
    }

    fn claim(&self, vacancy: Vacancy) -> Result<UnsettledChild, StoreError> {
        let Settings { lessee, random, options, attributes, .. } = &*self.settings;
        let claim = Claim::new(self.key.clone(), lessee.clone(), random.nonce()?, options.ttl())
            .with_attributes(attributes.clone());
        let claim = match &self.session {
            Some(session) => claim.under(session.parent.clone()),
            None => claim,
        };
        Ok(UnsettledChild { claim, vacancy, clearing: Arc::default() })
    }

    /// Sends one request of `claim`, under a number of its own.
    async fn ask(&mut self, claim: &mut UnsettledChild) -> Result<Obtained, StoreError> {
        let repeated = claim.claim.clone().repeated();
        let UnsettledChild { claim: sent, vacancy, .. } = claim;
        self.sent = self.settings.clock.now();
        let request = self.sessions()?.obtain_under(sent, vacancy);
        let answer = self.settings.ask(StoreOperation::Obtain, request).await;
        *sent = repeated;
        answer.inspect_err(|error| {
            debug!(
                key = %self.key, lessee = %self.settings.lessee, error = error as &dyn Error,
                "attempt failed"
            );
        })
    }

    /// Keeps a claim whose outcome is unknown, and repeats it. Without a session, this is not necessary: the
    /// ttl frees the key.
    fn keep(self, claim: UnsettledChild, error: &StoreError) {
        let was_sent =
            !matches!(error.kind(), StoreErrorKind::Refused | StoreErrorKind::Unsupported);
        let Some(session) = self.session.clone().filter(|_| was_sent) else { return };
        // Stores the claim before the caller gets the error: the caller's next attempt must repeat the claim.
        let claim = UnsettledChild { clearing: Arc::default(), ..claim };
        session.put(claim.clone());
        let (runtime, guard) = (self.runtime.clone(), self.runtime.request_guard());
        runtime.spawn(self.clear_up(session, claim, guard).instrument(Span::current()));
    }

    /// Repeats the claim until it is answered, or until the session has ended: no ttl frees the key. Ends at
    /// once if a new attempt takes over the claim. If the repetition is granted, the key is released.
    async fn clear_up(
        mut self,
        session: Arc<Membership>,
        mut claim: UnsettledChild,
        _guard: RequestGuard,
    ) {
        let (settings, clearing) = (Arc::clone(&self.settings), Arc::clone(&claim.clearing));
        let limit = settings.options.request_timeout();
        let mut pauses = Pauses::new(&settings.options, &settings.random);
        // The caller has this long to repeat its attempt before the cleanup repeats the claim.
        let patience = (settings.options.heartbeat_period() / 4).min(Pauses::LONGEST);
        let mut next = settings.clock.now() + patience;
        loop {
            if clearing.sleep_until(&*settings.clock, next, limit).await.is_none() {
                return;
            }
            if session.is_over() {
                session.remove(&claim.claim);
                return;
            }
            match clearing.unless_taken_over(self.ask(&mut claim)).await {
                None => return,
                Some(Ok(obtained)) => {
                    // If another attempt has taken over the claim, that attempt gets the same answer.
                    if session.remove(&claim.claim)
                        && let Obtained::Granted(grant, attributes) = obtained
                    {
                        // No caller waits for this lease: dropping it releases the key.
                        drop(self.lease(grant, attributes));
                    }
                    return;
                }
                Some(Err(_unclear)) => next = settings.clock.now() + pauses.next(),
            }
        }
    }

    fn answer(&self, grant: Grant, attributes: Attributes) -> Result<Attempt, StoreError> {
        let lease = self.lease(grant, attributes);
        if lease.is_held() {
            return Ok(Attempt::Obtained(lease));
        }
        self.refuse_if_over()?;
        let too_late = "the key was granted too late to be of use";
        Err(StoreError::new(StoreErrorKind::Unavailable, too_late))
    }

    fn lease(&self, grant: Grant, attributes: Attributes) -> Lease {
        let (granted_at, beat) = (self.sent, Beat::GRANTED);
        let deadline = granted_at + self.settings.trusted(grant.ttl);
        let granted = GrantedLease { grant, attributes, granted_at, deadline, beat };
        Lease::new(&self.settings, &self.runtime, granted)
    }
}

async fn read(sessions: &dyn Sessions, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
    let answers = sessions.read_all(std::slice::from_ref(key)).await;
    answers.into_iter().next().unwrap_or_else(|| Err(unexpected()))
}

/// The error for an answer of a store that contradicts itself.
fn unexpected() -> StoreError {
    StoreError::new(
        StoreErrorKind::Corrupt,
        "the store has answered a read in a way that contradicts itself",
    )
}

/// How often an attempt looks again after a refused claim. A refusal means that the key was granted after the
/// look.
const MOST_REFUSALS: usize = 2;
