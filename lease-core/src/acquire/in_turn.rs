//! Waiting in the store's queue, until the store grants the key.

use std::error::Error;
use std::time::Duration;

use tokio::select;
use tracing::debug;

use crate::acquire::attempt::Attempt;
use crate::acquire::contest::Contest;
use crate::acquire::pending_attempt::{Request, attempt};
use crate::acquire::standing::{Accepted, Standing};
use crate::clock::{Moment, sleep_until};
use crate::error::StoreError;
use crate::key::LeaseKey;
use crate::lease::Lease;
use crate::settings::Settings;
use crate::settings::backoff::Pauses;
use crate::store::attributes::Attributes;
use crate::store::grant::Grant;
use crate::store::in_turn::{Enqueued, InTurn, Notice, Notices, Place};
use crate::store::time_limit::within;

/// Waits in the store's queue. Returns `None` if the store keeps no queue for the key.
pub(crate) async fn wait_in_turn(
    contest: Contest<'_>,
    queues: &dyn InTurn,
    key: &LeaseKey,
) -> Result<Option<Lease>, StoreError> {
    if let Some(lease) = attempt_if_quiet(contest, key).await? {
        return Ok(Some(lease));
    }
    loop {
        let mut standing = Standing::new(contest, key)?;
        standing.take_over().await;
        let pauses = Pauses::new(&contest.settings.options, &contest.settings.random);
        let next_look = contest.settings.clock.now();
        let wait = Wait { contest, queues, standing, pauses, is_deaf: false, next_look };
        match wait.run().await? {
            Outcome::Obtained(lease) => return Ok(Some(lease)),
            Outcome::NoQueue => {
                contest.position.send_replace(None);
                return Ok(None);
            }
            Outcome::Gone => contest.position.send_replace(None),
        };
    }
}

/// An attempt outside the queue is cheaper than a place. Makes no attempt if a waiter of this locker had to
/// queue for the key recently. Returns `None` if the key is held.
async fn attempt_if_quiet(
    contest: Contest<'_>,
    key: &LeaseKey,
) -> Result<Option<Lease>, StoreError> {
    let Contest { settings, runtime, unsettled, one_at_a_time, contended, .. } = contest;
    let mut pauses = Pauses::new(&settings.options, &settings.random);
    while !contended.contains(key, settings.clock.now()) {
        let alone = one_at_a_time.lock().await;
        let (ask, now) = (Request::Obtain(key.clone()), settings.clock.now());
        let outcome = attempt(settings, runtime, unsettled, ask, now).await;
        drop(alone);
        match outcome {
            Ok(Attempt::Obtained(lease)) => return Ok(Some(lease)),
            Ok(Attempt::Held(_)) => return Ok(None),
            Err(error) if error.is_retryable() => settings.sleep(pauses.next()).await,
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

struct Wait<'a> {
    contest: Contest<'a>,
    queues: &'a dyn InTurn,
    standing: Standing,
    pauses: Pauses<'a>,
    /// The store could not notify the waiter. So the waiter polls, and listens again before each request.
    is_deaf: bool,
    /// The earliest time of the next renewal between the regular ones.
    next_look: Moment,
}

enum Outcome {
    Obtained(Lease),
    Gone,
    NoQueue,
}

enum Step {
    Listen,
    Ask,
    Sleep(Moment),
    End(Outcome),
}

impl Wait<'_> {
    async fn run(mut self) -> Result<Outcome, StoreError> {
        let mut notices = Notices::never();
        let mut step = Step::Listen;
        loop {
            let next = match step {
                Step::End(outcome) => return Ok(outcome),
                Step::Listen => {
                    let listened = self.listen().await;
                    self.is_deaf = listened.is_err();
                    notices = match listened {
                        Ok(listening) => listening,
                        Err(error) if error.is_retryable() => Notices::never(),
                        Err(_never) => return Ok(Outcome::NoQueue),
                    };
                    Ok(Step::Ask)
                }
                Step::Ask => self.ask(&mut notices).await,
                Step::Sleep(until) => self.sleep(until, &mut notices).await,
            };
            step = match next {
                Ok(step) => step,
                // Listens during the pause: a grant may arrive although a request failed.
                Err(error) if error.is_retryable() => {
                    Step::Sleep(self.contest.settings.clock.now() + self.pauses.next())
                }
                Err(error) => return Err(error),
            };
        }
    }

    async fn listen(&mut self) -> Result<Notices, StoreError> {
        let limit = self.contest.settings.options.request_timeout().min(LONGEST_WAIT_FOR_NOTICES);
        let claim = self.standing.claim();
        let listened = within(limit, self.queues.listen(claim)).await;
        if let Err(error) = &listened {
            debug!(key = %claim.key, error = error as &dyn Error, "waiter cannot receive notices");
        }
        listened
    }

    async fn ask(&mut self, notices: &mut Notices) -> Result<Step, StoreError> {
        let settings = self.contest.settings;
        // The store may grant each first request at once, but the caller needs only one key.
        let _alone = if self.standing.has_place() {
            None
        } else {
            Some(self.contest.one_at_a_time.lock().await)
        };
        let answer = select! {
            // Polls the notices first: a notice may be the grant of an earlier request.
            biased;
            notice = notices.next() => return self.receive(notice).await,
            answer = self.standing.ask() => answer?,
        };
        let now = settings.clock.now();
        match answer {
            Enqueued::Granted(grant, attributes) => {
                if !self.standing.has_place() {
                    self.contest.contended.remove(&grant.key);
                }
                self.accept(grant, attributes).await
            }
            Enqueued::Queued(place) => {
                self.pauses = Pauses::new(&settings.options, &settings.random);
                self.contest.contended.note(
                    &self.standing.claim().key,
                    now,
                    settings.options.ttl(),
                );
                self.contest.position.send_replace(place.ahead);
                Ok(Step::Sleep(now + self.until_renewal(place, notices)))
            }
            Enqueued::Gone => Ok(Step::End(Outcome::Gone)),
            Enqueued::NoQueue => Ok(Step::End(Outcome::NoQueue)),
        }
    }

    /// Returns the time until the next renewal. When the holder's lease expires, each waiter also renews,
    /// because no release then grants the key. At most once per ttl, since a living holder with a short ttl extends
    /// its lease many times per ttl of the waiter.
    fn until_renewal(&mut self, place: Place, notices: &Notices) -> Duration {
        let options = &self.contest.settings.options;
        let mut period = options.ttl() / RENEWALS_PER_TTL;
        if !notices.can_notify() {
            let poll = options.poll_interval() * 3 / 2;
            period = period.min(self.contest.settings.random.part_of(poll, 1.0 / 3.0));
        }
        let Some(left) = place.expires_in else { return period };
        let now = self.contest.settings.clock.now();
        let look = left.saturating_add(self.turn(place.ahead)).max(self.next_look.since(now));
        if look >= period {
            return period;
        }
        self.next_look = now + look + options.ttl();
        look
    }

    /// After an expiry, the first waiters renew one after another, and the others soon after them.
    fn turn(&self, ahead: Option<u64>) -> Duration {
        let Settings { options, random, .. } = &**self.contest.settings;
        let ahead = ahead.and_then(|ahead| u32::try_from(ahead).ok()).unwrap_or(u32::MAX);
        let turn = STEP.saturating_mul(ahead.saturating_add(1));
        if turn <= options.ttl() / 20 { turn } else { random.part_of(options.ttl() / 12, 0.6) }
    }

    async fn sleep(&mut self, until: Moment, notices: &mut Notices) -> Result<Step, StoreError> {
        let settings = self.contest.settings;
        select! {
            // Polls the notices first: after a grant, a renewal is useless.
            biased;
            notice = notices.next() => self.receive(notice).await,
            () = sleep_until(&*settings.clock, until, settings.options.heartbeat_period()) => {
                Ok(if self.is_deaf { Step::Listen } else { Step::Ask })
            }
        }
    }

    async fn receive(&mut self, notice: Notice) -> Result<Step, StoreError> {
        match notice {
            Notice::Granted(grant, attributes) => self.accept(grant, attributes).await,
            Notice::Missed => Ok(Step::Listen),
        }
    }

    async fn accept(&mut self, grant: Grant, attributes: Attributes) -> Result<Step, StoreError> {
        Ok(match self.standing.accept(grant, attributes).await? {
            Accepted::Lease(lease) => Step::End(Outcome::Obtained(lease)),
            Accepted::Unconfirmed => {
                Step::Sleep(self.contest.settings.clock.now() + self.pauses.next())
            }
            Accepted::Lost => Step::End(Outcome::Gone),
        })
    }
}

/// With three renewals per ttl, two may fail.
const RENEWALS_PER_TTL: u32 = 3;

/// The time between the renewals of two successive waiters after an expiry.
const STEP: Duration = Duration::from_millis(10);

/// A waiter that cannot listen polls, so it must not wait long for its notices.
const LONGEST_WAIT_FOR_NOTICES: Duration = Duration::from_secs(1);
