//! A store behind a bad network: requests fail, hang, arrive late or twice, or lose their replies.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::error::{StoreError, StoreErrorKind};
use crate::key::{LeaseKey, Lessee};
use crate::store::attributes::{Attributes, Change};
use crate::store::grant::{
    Beat, Claim, Grant, GrantId, Heartbeat, HeldKey, Holder, Obtained, Written,
};
use crate::store::in_turn::{Enqueued, InTurn, Notice, Notices};
use crate::store::lease_table::{LeaseRecord, LeaseTable};
use crate::store::lock_store::{Freed, LockStore};

/// Wraps a store and injects network faults into its requests.
///
/// Each request runs in its own task, so a request continues after its caller dropped it, as on a real
/// network. Clones share their faults.
///
/// # Examples
///
/// The next release is applied, but its reply is lost:
///
/// ```
/// # async fn run<S: lease_core::store::LockStore>(store: S) {
/// use lease_core::conformance::{Call, Fault, Faulty};
///
/// let faulty = Faulty::new(store);
/// faulty.next(Call::Release, Fault::LoseReply);
/// # }
/// ```
pub struct Faulty<S> {
    store: Arc<S>,
    network: Option<Handle>,
    latency: Duration,
    plan: Arc<Mutex<Plan>>,
}

/// The kind of request that a fault applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Call {
    /// [`LockStore::obtain`].
    Obtain,
    /// [`LockStore::heartbeat`].
    Heartbeat,
    /// [`LockStore::release`].
    Release,
    /// [`LockStore::adopt`].
    Adopt,
    /// A write of [`LeaseTable`], or an eviction.
    Write,
    /// A read of the holder, of one record, or of a list or scan.
    Read,
    /// [`InTurn::enqueue`] and [`InTurn::renew`].
    Enqueue,
    /// [`InTurn::leave`].
    Leave,
}

/// A fault of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request is not applied, and the caller gets an error at once.
    Fail,
    /// The request is not applied, and the caller never gets an answer.
    Hang,
    /// The request is applied, and the caller gets an error. A list returns its first half before.
    LoseReply,
    /// The request is applied, and the caller never gets an answer.
    HangReply,
    /// The request is applied and answered after this delay.
    DelayRequest(Duration),
    /// The request is applied at once, and answered after this delay.
    DelayReply(Duration),
    /// The caller gets an error at once, and the request is applied after this delay.
    ApplyLate(Duration),
    /// The request is applied and answered, and applied again after this delay.
    Double(Duration),
}

#[derive(Default)]
struct Plan {
    next: HashMap<Call, VecDeque<Fault>>,
    every: HashMap<Call, Fault>,
    choose: Option<Chooser>,
    calls: HashMap<Call, usize>,
}

type Chooser = Box<dyn FnMut(Call) -> Option<Fault> + Send>;

impl<S> Faulty<S> {
    /// Wraps `store`, without faults at first.
    pub fn new(store: S) -> Self {
        Self {
            store: Arc::new(store),
            network: None,
            latency: Duration::ZERO,
            plan: Arc::default(),
        }
    }

    /// Runs requests on `network` rather than on the caller's runtime. For simulations that stop a
    /// caller's runtime while its requests are in flight.
    #[must_use]
    pub fn carried_by(self, network: Handle) -> Self {
        Self { network: Some(network), ..self }
    }

    /// Delays every request by `latency`, in addition to its fault. Watches are not delayed.
    #[must_use]
    pub fn with_latency(self, latency: Duration) -> Self {
        Self { latency, ..self }
    }

    /// The store itself, without faults.
    pub fn inner(&self) -> Arc<S> {
        Arc::clone(&self.store)
    }

    /// Queues `fault` for the next `call`. Queued faults apply in order, one per call.
    pub fn next(&self, call: Call, fault: Fault) {
        self.plan().next.entry(call).or_default().push_back(fault);
    }

    /// Injects `fault` into every `call` from now on. Other kinds of calls keep their faults.
    pub fn every(&self, call: Call, fault: Fault) {
        self.plan().every.insert(call, fault);
    }

    /// Lets `choose` pick the fault of each call from now on. Use it for random faults. To cut off a
    /// machine, use `choose(|_| Some(Fault::Hang))`.
    pub fn choose(&self, choose: impl FnMut(Call) -> Option<Fault> + Send + 'static) {
        self.plan().choose = Some(Box::new(choose));
    }

    /// Ends all faults. A request that hangs already continues to hang.
    pub fn heal(&self) {
        let mut plan = self.plan();
        let calls = std::mem::take(&mut plan.calls);
        *plan = Plan { calls, ..Plan::default() };
    }

    /// The number of `call`s so far, with and without faults.
    pub fn calls(&self, call: Call) -> usize {
        self.plan().calls.get(&call).copied().unwrap_or(0)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        lock(&self.plan)
    }

    /// Makes one call with its planned fault. `apply` may run never, once or twice.
    async fn call<T, A>(
        &self,
        call: Call,
        apply: impl Fn(Arc<S>) -> A + Send + Sync + 'static,
    ) -> Result<T, StoreError>
    where
        S: Send + Sync + 'static,
        T: Send + 'static,
        A: Future<Output = Result<T, StoreError>> + Send,
    {
        let fault = self.plan().take_fault(call);
        let (reply, answer) = oneshot::channel();
        let (store, latency) = (Arc::clone(&self.store), self.latency);
        let network = self.network.clone().unwrap_or_else(Handle::current);
        network.spawn(async move {
            let apply = || apply(Arc::clone(&store));
            if !latency.is_zero() {
                sleep(latency).await;
            }
            apply_with(fault, apply, reply).await;
        });
        match answer.await {
            Ok(answer) => answer,
            // The network's runtime has ended: no answer will come.
            Err(_ended) => pending().await,
        }
    }
}

impl<S: Send + Sync + 'static> Faulty<S> {
    /// Makes a call whose answer arrives in two halves: if its reply is lost, the list ends halfway with an
    /// error.
    fn list_in_halves<T: Send + 'static>(
        &self,
        prefix: &str,
        list: impl Fn(Arc<S>, String) -> BoxFuture<'static, Vec<Result<T, StoreError>>>
        + Send
        + Sync
        + 'static,
    ) -> BoxStream<'_, Result<T, StoreError>> {
        let (prefix, arrived) = (prefix.to_owned(), Arc::new(Mutex::new(Vec::new())));
        let arrives = Arc::clone(&arrived);
        let listed = async move {
            let rest = self.call(Call::Read, move |store| {
                let (listed, arrives) = (list(store, prefix.clone()), Arc::clone(&arrives));
                async move {
                    let mut listed = listed.await;
                    let rest = listed.split_off(listed.len() / 2);
                    *lock(&arrives) = listed;
                    Ok(rest)
                }
            });
            let rest = rest.await.unwrap_or_else(|broken_off| vec![Err(broken_off)]);
            let first = std::mem::take(&mut *lock(&arrived));
            stream::iter(first.into_iter().chain(rest))
        };
        stream::once(listed).flatten().boxed()
    }
}

impl Plan {
    fn has_fault_for(&self, call: Call) -> bool {
        let queued = self.next.get(&call).is_some_and(|next| !next.is_empty());
        queued || self.every.contains_key(&call) || self.choose.is_some()
    }

    fn take_fault(&mut self, call: Call) -> Option<Fault> {
        *self.calls.entry(call).or_default() += 1;
        let next = self.next.get_mut(&call).and_then(VecDeque::pop_front);
        next.or_else(|| self.every.get(&call).copied())
            .or_else(|| self.choose.as_mut().and_then(|choose| choose(call)))
    }
}

/// Applies a request and sends the reply, with `fault` if any.
async fn apply_with<T, A: Future<Output = Result<T, StoreError>>>(
    fault: Option<Fault>,
    apply: impl Fn() -> A,
    mut reply: oneshot::Sender<Result<T, StoreError>>,
) {
    match fault {
        None => drop(reply.send(apply().await)),
        Some(Fault::Fail) => drop(reply.send(Err(unanswered()))),
        Some(Fault::Hang) => {
            // The caller continues to wait. This task ends when the caller stops waiting.
            reply.closed().await;
        }
        Some(Fault::LoseReply) => {
            drop(apply().await);
            drop(reply.send(Err(unanswered())));
        }
        Some(Fault::HangReply) => {
            drop(apply().await);
            reply.closed().await;
        }
        Some(Fault::DelayRequest(delay)) => {
            sleep(delay).await;
            drop(reply.send(apply().await));
        }
        Some(Fault::DelayReply(delay)) => {
            let applied = apply().await;
            sleep(delay).await;
            drop(reply.send(applied));
        }
        Some(Fault::ApplyLate(delay)) => {
            drop(reply.send(Err(unanswered())));
            sleep(delay).await;
            drop(apply().await);
        }
        Some(Fault::Double(delay)) => {
            drop(reply.send(apply().await));
            sleep(delay).await;
            drop(apply().await);
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock()
}

fn unanswered() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "connection reset (as planned)")
}

impl<S> Clone for Faulty<S> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            network: self.network.clone(),
            latency: self.latency,
            plan: Arc::clone(&self.plan),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Faulty<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("store", &self.store).finish_non_exhaustive()
    }
}

#[async_trait]
impl<S: LockStore> LockStore for Faulty<S> {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let claim = claim.clone();
        self.call(Call::Obtain, move |store| {
            let claim = claim.clone();
            async move { store.obtain(&claim).await }
        })
        .await
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let grant = grant.clone();
        self.call(Call::Heartbeat, move |store| {
            let grant = grant.clone();
            async move { store.heartbeat(&grant, beat).await }
        })
        .await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        let grant = grant.clone();
        self.call(Call::Release, move |store| {
            let grant = grant.clone();
            async move { store.release(&grant, reserved).await }
        })
        .await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let asked = (grant.clone(), claim.clone());
        self.call(Call::Adopt, move |store| {
            let (grant, claim) = asked.clone();
            async move { store.adopt(&grant, &claim).await }
        })
        .await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let key = key.clone();
        self.call(Call::Read, move |store| {
            let key = key.clone();
            async move { store.holder(&key).await }
        })
        .await
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        let asked = (key.clone(), grant.clone());
        self.call(Call::Write, move |store| {
            let (key, grant) = asked.clone();
            async move { store.evict(&key, &grant).await }
        })
        .await
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        self.list_in_halves(prefix, |store, prefix| {
            async move { store.scan(&prefix).collect().await }.boxed()
        })
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.store.watch(key).await
    }

    /// Uses the store's own batches, unless a heartbeat may meet a fault.
    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        if self.plan().has_fault_for(Call::Heartbeat) {
            let one = |(place, (grant, beat)): (usize, &'a (Grant, Beat))| async move {
                (place, self.heartbeat(grant, *beat).await)
            };
            return beats.iter().enumerate().map(one).collect::<FuturesUnordered<_>>().boxed();
        }
        *self.plan().calls.entry(Call::Heartbeat).or_default() += beats.len();
        let (answered, answers) = mpsc::unbounded_channel();
        let (store, latency) = (Arc::clone(&self.store), self.latency);
        let beats = beats.to_vec();
        let network = self.network.clone().unwrap_or_else(Handle::current);
        network.spawn(async move {
            if !latency.is_zero() {
                sleep(latency).await;
            }
            let mut stream = store.heartbeat_all(&beats);
            while let Some(answer) = stream.next().await {
                drop(answered.send(answer));
            }
        });
        let next = |mut answers: mpsc::UnboundedReceiver<_>| async move {
            let answer = answers.recv().await?;
            Some((answer, answers))
        };
        stream::unfold(answers, next).boxed()
    }

    fn in_turn(&self) -> Option<&dyn InTurn> {
        self.store.in_turn().map(|_queues| self as &dyn InTurn)
    }

    fn grain(&self) -> Duration {
        self.store.grain()
    }
}

/// Notices have the latency of requests, and no faults.
#[async_trait]
impl<S: LockStore> InTurn for Faulty<S> {
    async fn listen(&self, claim: &Claim) -> Result<Notices, StoreError> {
        let (answer, answered) = oneshot::channel();
        let (notify, notices) = mpsc::unbounded_channel();
        let (store, latency, claim) = (Arc::clone(&self.store), self.latency, claim.clone());
        let network = self.network.clone().unwrap_or_else(Handle::current);
        network.spawn(async move {
            let listened = match queues(&*store) {
                Ok(queues) => queues.listen(&claim).await,
                Err(error) => Err(error),
            };
            match listened {
                Ok(notices) => {
                    drop(answer.send(Ok(notices.can_notify())));
                    forward(notices, notify, latency).await;
                }
                Err(error) => drop(answer.send(Err(error))),
            }
        });
        match answered.await {
            Ok(can_notify) => Ok(if can_notify? { notices.into() } else { Notices::never() }),
            // The network's runtime has ended.
            Err(_ended) => pending().await,
        }
    }

    async fn enqueue(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        let claim = claim.clone();
        self.call(Call::Enqueue, move |store| {
            let claim = claim.clone();
            async move { queues(&*store)?.enqueue(&claim).await }
        })
        .await
    }

    async fn renew(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        let claim = claim.clone();
        self.call(Call::Enqueue, move |store| {
            let claim = claim.clone();
            async move { queues(&*store)?.renew(&claim).await }
        })
        .await
    }

    async fn leave(&self, claim: &Claim) -> Result<(), StoreError> {
        let claim = claim.clone();
        self.call(Call::Leave, move |store| {
            let claim = claim.clone();
            async move { queues(&*store)?.leave(&claim).await }
        })
        .await
    }
}

/// Forwards notices over the network until the waiter is dropped, or until one may have been missed.
async fn forward(mut notices: Notices, notify: mpsc::UnboundedSender<Notice>, latency: Duration) {
    loop {
        let notice = select! {
            biased;
            () = notify.closed() => return,
            notice = notices.next() => notice,
        };
        if !latency.is_zero() {
            sleep(latency).await;
        }
        let is_last = notice == Notice::Missed;
        if notify.send(notice).is_err() || is_last {
            return;
        }
    }
}

fn queues<S: LockStore>(store: &S) -> Result<&dyn InTurn, StoreError> {
    let none = || StoreError::new(StoreErrorKind::Unsupported, "this store keeps no queues");
    store.in_turn().ok_or_else(none)
}

#[async_trait]
impl<S: LeaseTable> LeaseTable for Faulty<S> {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let key = key.clone();
        self.call(Call::Read, move |store| {
            let key = key.clone();
            async move { store.read(&key).await }
        })
        .await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        self.list_in_halves(prefix, |store, prefix| {
            async move { store.list(&prefix).collect().await }.boxed()
        })
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        let asked = (key.clone(), attributes.clone());
        self.call(Call::Write, move |store| {
            let (key, attributes) = asked.clone();
            async move { store.create(&key, &attributes).await }
        })
        .await
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        let asked = (grant.clone(), change.clone());
        self.call(Call::Write, move |store| {
            let (grant, change) = asked.clone();
            async move { store.update(&grant, &change).await }
        })
        .await
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        let asked = (grant.clone(), to.clone());
        self.call(Call::Write, move |store| {
            let (grant, to) = asked.clone();
            async move { store.transfer(&grant, &to, reserved).await }
        })
        .await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        let grant = grant.clone();
        self.call(Call::Write, move |store| {
            let grant = grant.clone();
            async move { store.delete(&grant).await }
        })
        .await
    }
}
