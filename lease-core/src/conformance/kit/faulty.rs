//! A store behind a bad network: requests fail, hang, come late, twice, or lose their replies.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, FuturesUnordered};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::error::{StoreError, StoreErrorKind};
use crate::key::{LeaseKey, Lessee};
use crate::store::attributes::{Attributes, Change};
use crate::store::grant::{Beat, Claim, Grant, Heartbeat, Holder, Obtained, Written};
use crate::store::lease_table::{LeaseRecord, LeaseTable};
use crate::store::lock_store::{Freed, LockStore};
use crate::token::FencingToken;

/// Wraps a store and does to its requests what networks do, as told.
///
/// Each request runs in a task of its own, so one whose caller has given up goes on, as a
/// request on a wire does. Clones share their faults.
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

/// Which request a fault befalls.
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
    /// A write of [`LeaseTable`].
    Write,
    /// Anything that only reads: one record, or a list.
    Read,
}

/// What befalls a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is not applied, and the caller gets an error at once.
    Fail,
    /// It is not applied, and the caller gets no answer ever.
    Hang,
    /// It is applied, and the caller gets an error; of a list, half of it before.
    LoseReply,
    /// It is applied, and the caller gets no answer ever.
    HangReply,
    /// It is applied after this long, and answered then.
    DelayRequest(Duration),
    /// It is applied at once, and answered after this long.
    DelayReply(Duration),
    /// The caller gets an error at once; it is applied after this long.
    ApplyLate(Duration),
    /// It is applied and answered, and applied again after this long.
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
    /// Wraps `store`; nothing is wrong yet.
    pub fn new(store: S) -> Self {
        Self {
            store: Arc::new(store),
            network: None,
            latency: Duration::ZERO,
            plan: Arc::default(),
        }
    }

    /// Carries requests on `network` rather than on the caller's runtime: for simulations that
    /// stop a caller's runtime while its requests are on their way.
    #[must_use]
    pub fn carried_by(self, network: Handle) -> Self {
        Self { network: Some(network), ..self }
    }

    /// Lets every request take `latency` to arrive, whatever else befalls it. A watch is none.
    #[must_use]
    pub fn with_latency(self, latency: Duration) -> Self {
        Self { latency, ..self }
    }

    /// The store itself, past the network.
    pub fn inner(&self) -> Arc<S> {
        Arc::clone(&self.store)
    }

    /// Queues `fault` for the next `call`; several queue up.
    pub fn next(&self, call: Call, fault: Fault) {
        self.plan().next.entry(call).or_default().push_back(fault);
    }

    /// Lets `fault` befall every `call` from now on. Faults of different calls add up.
    pub fn every(&self, call: Call, fault: Fault) {
        self.plan().every.insert(call, fault);
    }

    /// Asks `choose` about each call from now on: for random faults, and to cut a machine off,
    /// `choose(|_| Some(Fault::Hang))`.
    pub fn choose(&self, choose: impl FnMut(Call) -> Option<Fault> + Send + 'static) {
        self.plan().choose = Some(Box::new(choose));
    }

    /// Lets nothing befall any call from now on. What hangs goes on hanging.
    pub fn heal(&self) {
        let mut plan = self.plan();
        let calls = std::mem::take(&mut plan.calls);
        *plan = Plan { calls, ..Plan::default() };
    }

    /// How many `call`s were made, whatever befell them.
    pub fn calls(&self, call: Call) -> usize {
        self.plan().calls.get(&call).copied().unwrap_or(0)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        lock(&self.plan)
    }

    /// Makes one call as the plan has it. `apply` may run never, once or twice.
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
        let fault = self.plan().befalls(call);
        let (reply, answer) = oneshot::channel();
        let (store, latency) = (Arc::clone(&self.store), self.latency);
        let network = self.network.clone().unwrap_or_else(Handle::current);
        network.spawn(async move {
            let apply = || apply(Arc::clone(&store));
            if !latency.is_zero() {
                sleep(latency).await;
            }
            match fault {
                None => drop(reply.send(apply().await)),
                Some(Fault::Fail) => drop(reply.send(Err(unanswered()))),
                Some(Fault::Hang) => {
                    // The caller goes on waiting, and this task ends with it.
                    let mut reply = reply;
                    reply.closed().await;
                }
                Some(Fault::LoseReply) => {
                    drop(apply().await);
                    drop(reply.send(Err(unanswered())));
                }
                Some(Fault::HangReply) => {
                    let mut reply = reply;
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
        });
        match answer.await {
            Ok(answer) => answer,
            // The network's runtime has ended: nobody will answer.
            Err(_ended) => pending().await,
        }
    }
}

impl Plan {
    fn may_befall(&self, call: Call) -> bool {
        let queued = self.next.get(&call).is_some_and(|next| !next.is_empty());
        queued || self.every.contains_key(&call) || self.choose.is_some()
    }

    fn befalls(&mut self, call: Call) -> Option<Fault> {
        *self.calls.entry(call).or_default() += 1;
        let next = self.next.get_mut(&call).and_then(VecDeque::pop_front);
        next.or_else(|| self.every.get(&call).copied())
            .or_else(|| self.choose.as_mut().and_then(|choose| choose(call)))
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
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

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.store.watch(key).await
    }

    /// In the store's own batches, unless a fault may befall one of them.
    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        if self.plan().may_befall(Call::Heartbeat) {
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

    fn grain(&self) -> Duration {
        self.store.grain()
    }
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

    /// A list comes in pages: one whose reply is lost is broken off half way.
    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        let (prefix, arrived) = (prefix.to_owned(), Arc::new(Mutex::new(Vec::new())));
        let arrives = Arc::clone(&arrived);
        let listed = async move {
            let rest = self.call(Call::Read, move |store| {
                let (prefix, arrives) = (prefix.clone(), Arc::clone(&arrives));
                async move {
                    let mut listed: Vec<_> = store.list(&prefix).collect().await;
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

    async fn evict(&self, key: &LeaseKey, token: FencingToken) -> Result<bool, StoreError> {
        let key = key.clone();
        self.call(Call::Write, move |store| {
            let key = key.clone();
            async move { store.evict(&key, token).await }
        })
        .await
    }
}
