//! One claim in the queue of a store: its numbered requests, its grant, and its end.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tracing::{Instrument, Span, debug};

use crate::acquire::contest::Contest;
use crate::acquire::unsettled::{ClaimCleanup, ClaimRequests};
use crate::clock::Moment;
use crate::error::StoreError;
use crate::heartbeat::locker_runtime::LockerRuntime;
use crate::key::LeaseKey;
use crate::lease::{GrantedLease, Lease};
use crate::metrics::StoreOperation;
use crate::runtime::requests_in_flight::RequestGuard;
use crate::settings::Settings;
use crate::settings::backoff::Pauses;
use crate::store::attributes::Attributes;
use crate::store::grant::{Beat, Claim, Grant, Heartbeat, RequestNumber};
use crate::store::in_turn::Enqueued;
use crate::store::lock_store::LockStore;

/// If the claim is dropped before it has a lease, a task removes the claim from the queue.
pub(crate) struct Standing {
    settings: Arc<Settings>,
    runtime: LockerRuntime,
    claim: Claim,
    requests: Arc<ClaimRequests>,
    /// The cleanup of the earlier attempt whose claim this waiter repeats.
    taken_over: Option<Arc<ClaimCleanup>>,
    sent: VecDeque<(RequestNumber, Moment)>,
    beat: Beat,
    has_place: bool,
    in_flight: Option<BoxFuture<'static, Result<Enqueued, StoreError>>>,
    /// The store may know the claim, so a dropped waiter must leave the queue.
    must_leave: bool,
}

pub(crate) enum Accepted {
    Lease(Lease),
    /// The grant may hold the key, but the request is too old, or a later heartbeat was applied first.
    Unconfirmed,
    Lost,
}

impl Standing {
    /// Makes a claim of `key`, or continues an earlier claim of this locker that may still be granted. Call
    /// [`take_over`](Self::take_over) before the first request.
    pub(crate) fn new(contest: Contest<'_>, key: &LeaseKey) -> Result<Self, StoreError> {
        let settings = Arc::clone(contest.settings);
        let earlier = contest.unsettled.take(key, None, settings.clock.now());
        let (claim, requests, beat, taken_over) = if let Some(earlier) = earlier {
            (earlier.claim, earlier.requests, earlier.beat, Some(earlier.clearing))
        } else {
            let (lessee, ttl) = (settings.lessee.clone(), settings.options.ttl());
            let claim = Claim::new(key.clone(), lessee, settings.random.nonce()?, ttl)
                .with_attributes(settings.attributes.clone());
            (claim, Arc::default(), Beat::GRANTED, None)
        };
        Ok(Self {
            settings,
            runtime: contest.runtime.clone(),
            must_leave: requests.has_unanswered(),
            claim,
            requests,
            taken_over,
            sent: VecDeque::new(),
            beat,
            has_place: false,
            in_flight: None,
        })
    }

    /// Ends the cleanup of the earlier attempt. The earlier claim may hold the key, so a waiter that is dropped
    /// during this call also leaves the queue.
    pub(crate) async fn take_over(&mut self) {
        if let Some(cleanup) = &self.taken_over {
            cleanup.take_over().await;
        }
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    pub(crate) fn has_place(&self) -> bool {
        self.has_place
    }

    /// The store may still apply a dropped request, so the next request has another number.
    pub(crate) async fn ask(&mut self) -> Result<Enqueued, StoreError> {
        let sent = self.settings.clock.now();
        self.claim.request = self.requests.next();
        self.must_leave = true;
        let ttl = self.claim.ttl;
        self.sent.retain(|(_, moment)| sent.since(*moment) < ttl);
        self.sent.push_back((self.claim.request, sent));

        let (settings, claim) = (Arc::clone(&self.settings), self.claim.clone());
        let has_place = self.has_place;
        let request = async move {
            let answer = send(&*settings.store, &claim, has_place);
            settings.ask(StoreOperation::Queue, answer).await
        };
        let answer = self.in_flight.insert(request.boxed()).await;
        self.in_flight = None;
        let answer = answer.inspect_err(|error| {
            debug!(
                key = %self.claim.key, lessee = %self.claim.lessee, error = error as &dyn Error,
                "request for a place failed"
            );
        })?;
        self.requests.answered();
        match answer {
            Enqueued::Queued(_) => self.has_place = true,
            Enqueued::Gone | Enqueued::NoQueue => self.must_leave = self.requests.has_unanswered(),
            Enqueued::Granted(..) => (),
        }
        Ok(answer)
    }

    /// If the grant names an old or unknown request, a heartbeat confirms the grant, and the lease counts
    /// from this heartbeat.
    pub(crate) async fn accept(
        &mut self,
        grant: Grant,
        attributes: Attributes,
    ) -> Result<Accepted, StoreError> {
        let trusted = self.settings.trusted(grant.ttl);
        let now = self.settings.clock.now();
        let granted_at = match self.sent_at(grant.request) {
            Some(sent) if now < sent + trusted / 2 => sent,
            _ => match self.confirm(&grant).await? {
                Confirmed::From(sent) => sent,
                Confirmed::Overtaken => return Ok(Accepted::Unconfirmed),
                Confirmed::Lost => return Ok(Accepted::Lost),
            },
        };
        let deadline = granted_at + trusted;
        if self.settings.clock.now() >= deadline {
            return Ok(Accepted::Unconfirmed);
        }
        let granted = GrantedLease { grant, attributes, granted_at, deadline, beat: self.beat };
        self.must_leave = false;
        Ok(Accepted::Lease(Lease::new(&self.settings, &self.runtime, granted)))
    }

    fn sent_at(&self, request: Option<RequestNumber>) -> Option<Moment> {
        let named = self.sent.iter().find(|(number, _)| Some(*number) == request);
        named.map(|(_, sent)| *sent)
    }

    async fn confirm(&mut self, grant: &Grant) -> Result<Confirmed, StoreError> {
        let sent = self.settings.clock.now();
        self.beat = self.beat.next();
        let settings = &self.settings;
        Ok(
            match settings
                .ask(StoreOperation::Heartbeat, settings.store.heartbeat(grant, self.beat))
                .await?
            {
                Heartbeat::Extended => Confirmed::From(sent),
                Heartbeat::Overtaken => Confirmed::Overtaken,
                Heartbeat::Lost(_cause) => Confirmed::Lost,
            },
        )
    }
}

enum Confirmed {
    From(Moment),
    Overtaken,
    Lost,
}

async fn send(
    store: &dyn LockStore,
    claim: &Claim,
    has_place: bool,
) -> Result<Enqueued, StoreError> {
    let Some(queues) = store.in_turn() else { return Ok(Enqueued::NoQueue) };
    if has_place { queues.renew(claim).await } else { queues.enqueue(claim).await }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if !self.must_leave {
            return;
        }
        let departure = Departure {
            settings: Arc::clone(&self.settings),
            claim: self.claim.clone(),
            taken_over: self.taken_over.take(),
            in_flight: self.in_flight.take(),
            _guard: self.runtime.request_guard(),
        };
        self.runtime.spawn(departure.run().instrument(Span::current()));
    }
}

struct Departure {
    settings: Arc<Settings>,
    claim: Claim,
    taken_over: Option<Arc<ClaimCleanup>>,
    in_flight: Option<BoxFuture<'static, Result<Enqueued, StoreError>>>,
    _guard: RequestGuard,
}

impl Departure {
    /// Leaves at once, and leaves again if a request in flight may have arrived later.
    async fn run(mut self) {
        if let Some(cleanup) = self.taken_over.take() {
            // A request of the cleanup must not arrive after this claim has left.
            cleanup.take_over().await;
        }
        let in_flight = self.in_flight.take();
        let late = async {
            match in_flight {
                Some(request) => !matches!(request.await, Ok(Enqueued::Gone | Enqueued::NoQueue)),
                None => false,
            }
        };
        let ((), may_have_place) = tokio::join!(leave(&self.settings, &self.claim), late);
        if may_have_place {
            leave(&self.settings, &self.claim).await;
        }
    }
}

/// Repeats the request until the store answers. Stops after a ttl, because the place has then expired.
async fn leave(settings: &Settings, claim: &Claim) {
    let gives_up = settings.clock.now() + claim.ttl;
    let mut pauses = Pauses::new(&settings.options, &settings.random);
    loop {
        let Some(queues) = settings.store.in_turn() else { return };
        match settings.ask(StoreOperation::Queue, queues.leave(claim)).await {
            Ok(()) => return,
            Err(error) if !error.is_retryable() || settings.clock.now() >= gives_up => return,
            Err(_unclear) => settings.sleep(pauses.next()).await,
        }
    }
}
