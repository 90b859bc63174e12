//! The tokio runtime of a locker, and the heartbeater that runs on it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;
use tokio_util::context::TokioContext;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{StoreError, StoreErrorKind};
use crate::heartbeat::command_queue::{Command, CommandSender, command_queue};
use crate::heartbeat::heartbeater::{Heartbeater, first_look};
use crate::runtime::detach_on_drop::{DetachOnDrop, Work};
use crate::runtime::own_thread::{OwnThread, ThreadGuard};
use crate::runtime::requests_in_flight::{RequestGuard, RequestsInFlight};
use crate::settings::Settings;

#[derive(Debug, Clone, Default)]
pub(crate) enum Runtime {
    #[default]
    Callers,
    Given(Handle),
    Thread(OwnThread),
}

#[derive(Debug, Clone)]
pub(crate) struct LockerRuntime(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    runtime: Handle,
    heartbeater: CommandSender,
    in_tasks: RequestsInFlight,
    in_callers: RequestsInFlight,
    leases: AtomicU64,
    thread: Option<ThreadGuard>,
}

impl LockerRuntime {
    pub(crate) fn start(
        settings: &Arc<Settings>,
        runtime: &Runtime,
        in_tasks: RequestsInFlight,
        in_callers: RequestsInFlight,
    ) -> Result<Self, StoreError> {
        let (runtime, thread) = match runtime {
            Runtime::Thread(OwnThread { runtime, guard }) => (runtime.clone(), Some(guard.clone())),
            Runtime::Given(runtime) => (runtime.clone(), None),
            Runtime::Callers => {
                let current = Handle::try_current()
                    .map_err(|outside| StoreError::new(StoreErrorKind::Misconfigured, outside))?;
                (current, None)
            }
        };
        let (heartbeater, commands) = command_queue(first_look(&settings.options));
        runtime.spawn(Heartbeater::new(Arc::clone(settings), commands).run());
        let leases = AtomicU64::default();
        Ok(Self(Arc::new(Shared { runtime, heartbeater, in_tasks, in_callers, leases, thread })))
    }

    pub(crate) fn next_lease(&self) -> u64 {
        self.0.leases.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn request_guard(&self) -> RequestGuard {
        self.0.in_tasks.guard(self.0.thread.clone())
    }

    pub(crate) fn send(&self, command: Command) {
        self.0.heartbeater.send(command);
    }

    pub(crate) fn heartbeater(&self) -> CommandSender {
        self.0.heartbeater.clone()
    }

    /// Whether the runtime, and with it the heartbeater, has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.heartbeater.is_closed()
    }

    pub(crate) fn why_unanswered(&self) -> StoreError {
        if self.has_ended() {
            return runtime_has_ended();
        }
        StoreError::new(
            StoreErrorKind::Misconfigured,
            "a task of this locker panicked: in its store, or because its runtime was built \
             without timers (`enable_time`)",
        )
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.runtime.spawn(task);
    }

    /// Runs `work` in a spawned task, which runs to its end even if this future is dropped or not polled.
    pub(crate) async fn run_in_task<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.0.runtime.spawn(work).await.unwrap_or_else(|_dropped| Err(self.why_unanswered()))
    }

    /// Runs `work` on this locker's runtime, which drives the store's connections. If this future
    /// is dropped, `work` is dropped, too.
    pub(crate) async fn run_until_dropped<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.is_current() {
            return work.await;
        }
        let task = AbortOnDropHandle::new(self.0.runtime.spawn(work));
        task.await.unwrap_or_else(|_dropped| Err(self.why_unanswered()))
    }

    /// A caller on this runtime polls `work` itself. For another caller, a spawned task runs
    /// `work`, so the timers of `work` fire even if the caller's runtime is blocked.
    pub(crate) async fn run_to_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + Unpin + 'static,
    ) -> Result<T, StoreError> {
        if self.is_current() {
            // This guard is dropped after `DetachOnDrop` has counted its task. So `close` always
            // finds the request in one of the two counts.
            let _in_caller = self.0.in_callers.guard(self.0.thread.clone());
            let output = DetachOnDrop::new(work, |rest| self.detach(rest)).await;
            return output.unwrap_or_else(|_panic| Err(self.why_unanswered()));
        }
        let guard = self.request_guard();
        let work = async move {
            let answer = work.await;
            drop(guard);
            answer
        };
        Box::pin(self.run_in_task(work)).await
    }

    fn detach<F>(&self, rest: Work<F>)
    where
        F: Future + Send + Unpin + 'static,
        F::Output: Send,
    {
        let guard = self.request_guard();
        self.spawn(async move {
            // The caller has dropped its future. If the answer is a lease, the drop releases the lease.
            drop(rest.await);
            drop(guard);
        });
    }

    /// Uses the timers of the caller's runtime if there is one, because the locker's runtime may be
    /// blocked.
    pub(crate) async fn with_timers<F: Future>(&self, future: F) -> F::Output {
        match Handle::try_current() {
            Ok(_here) => future.await,
            Err(_outside) => TokioContext::new(future, self.0.runtime.clone()).await,
        }
    }

    /// Whether the caller is on the runtime of this locker.
    pub(crate) fn is_current(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.0.runtime.id())
    }
}

pub(crate) fn runtime_has_ended() -> StoreError {
    StoreError::new(
        StoreErrorKind::Misconfigured,
        "the tokio runtime of this locker's heartbeats has ended: \
         make a new locker, or give it a runtime that lasts (`Locker::with_runtime`)",
    )
}
