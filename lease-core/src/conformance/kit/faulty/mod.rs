//! A store behind a bad network: requests fail, hang, arrive late or twice, or lose their replies.
//!
//! - This file: `Faulty`, which wraps a store, and injects the planned fault into each call.
//! - `fault.rs`: the kinds of calls and faults, and how a fault changes a request.
//! - `plan.rs`: selects the fault of the next call.
//! - `lock_store.rs`, `in_turn.rs`, `sessions.rs` and `lease_table.rs`: the traits of stores.

mod fault;
mod in_turn;
mod lease_table;
mod lock_store;
mod plan;
mod sessions;

use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::conformance::kit::faulty::fault::apply_with;
use crate::conformance::kit::faulty::plan::Plan;
use crate::error::StoreError;

pub use self::fault::{Call, Fault};

/// Wraps a store and injects network faults into its requests. Clones share their faults.
///
/// Each request runs in its own task, so a request continues after its caller has dropped it.
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

impl<S> Faulty<S> {
    /// Wraps `store`, without faults.
    pub fn new(store: S) -> Self {
        Self {
            store: Arc::new(store),
            network: None,
            latency: Duration::ZERO,
            plan: Arc::default(),
        }
    }

    /// Runs requests on `network` rather than on the caller's runtime, for simulations that stop a
    /// caller's runtime while it has unanswered requests.
    #[must_use]
    pub fn carried_by(self, network: Handle) -> Self {
        Self { network: Some(network), ..self }
    }

    /// Delays every request by `latency`, in addition to its fault.
    #[must_use]
    pub fn with_latency(self, latency: Duration) -> Self {
        Self { latency, ..self }
    }

    /// Returns the store itself, without faults.
    pub fn inner(&self) -> Arc<S> {
        Arc::clone(&self.store)
    }

    /// Queues `fault` for the next `call`. Queued faults apply in order, one per call.
    pub fn next(&self, call: Call, fault: Fault) {
        self.plan().next.entry(call).or_default().push_back(fault);
    }

    /// Injects `fault` into every `call` from now on.
    pub fn every(&self, call: Call, fault: Fault) {
        self.plan().every.insert(call, fault);
    }

    /// Lets `choose` pick the fault of each call, for example at random. To cut off a machine, use
    /// `choose(|_| Some(Fault::Hang))`.
    pub fn choose(&self, choose: impl FnMut(Call) -> Option<Fault> + Send + 'static) {
        self.plan().choose = Some(Box::new(choose));
    }

    /// Ends all faults. A request that already hangs continues to hang.
    pub fn heal(&self) {
        let mut plan = self.plan();
        let calls = std::mem::take(&mut plan.calls);
        *plan = Plan { calls, ..Plan::default() };
    }

    /// The number of calls of kind `call` so far, with and without faults.
    pub fn calls(&self, call: Call) -> usize {
        self.plan().calls.get(&call).copied().unwrap_or(0)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock()
    }

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
            Err(_ended) => pending().await,
        }
    }
}

impl<S: Send + Sync + 'static> Faulty<S> {
    /// The list arrives in two halves. If the reply is lost, the first half arrives, and then an error.
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
                    *arrives.lock() = listed;
                    Ok(rest)
                }
            });
            let rest = rest.await.unwrap_or_else(|broken_off| vec![Err(broken_off)]);
            let first = std::mem::take(&mut *arrived.lock());
            stream::iter(first.into_iter().chain(rest))
        };
        stream::once(listed).flatten().boxed()
    }
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
