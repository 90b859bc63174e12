//! Where a locker's tasks live: a runtime, and the heartbeater on it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;
use tokio_util::context::TokioContext;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{StoreError, StoreErrorKind};
use crate::heartbeat::{Heartbeater, first_look};
use crate::inbox::{Command, Teller, inbox};
use crate::outstanding::{Errand, Outstanding};
use crate::settings::Settings;
use crate::thread::{OwnThread, ThreadGuard};
use crate::undertaking::Undertaking;

/// Where a locker's tasks are to run.
#[derive(Debug, Clone, Default)]
pub(crate) enum Runtime {
    /// On the runtime on which the locker first obtains something.
    #[default]
    Callers,
    /// On this one.
    Given(Handle),
    /// On a thread of the locker's own.
    Thread(OwnThread),
}

#[derive(Debug, Clone)]
pub(crate) struct Home {
    runtime: Handle,
    heartbeater: Teller,
    outstanding: Outstanding,
    undertakings: Outstanding,
    leases: Arc<AtomicU64>,
    thread: Option<ThreadGuard>,
}

impl Home {
    /// Starts a heartbeater on `runtime`.
    pub(crate) fn start(
        settings: &Arc<Settings>,
        runtime: &Runtime,
        outstanding: Outstanding,
        undertakings: Outstanding,
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
        let (heartbeater, inbox) = inbox(first_look(&settings.options));
        runtime.spawn(Heartbeater::new(Arc::clone(settings), inbox).run());
        Ok(Self { runtime, heartbeater, outstanding, undertakings, leases: Arc::default(), thread })
    }

    pub(crate) fn next_lease(&self) -> u64 {
        self.leases.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn errand(&self) -> Errand {
        self.outstanding.errand(self.thread.clone())
    }

    pub(crate) fn tell(&self, command: Command) {
        self.heartbeater.tell(command);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.heartbeater.is_closed()
    }

    /// Why a task of this locker was dropped before it answered.
    pub(crate) fn why_unanswered(&self) -> StoreError {
        if self.is_gone() {
            return runtime_has_ended();
        }
        StoreError::new(
            StoreErrorKind::Misconfigured,
            "a task of this locker panicked: in its store, or because its runtime was built \
             without timers (`enable_time`)",
        )
    }

    /// Runs `errand` to its end, whoever waits for it.
    pub(crate) fn run(&self, errand: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(errand);
    }

    /// What `work` answers, which a task does to its end, whoever waits for this or polls it.
    pub(crate) async fn answer_of_task<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        // A runtime that has ended drops its tasks.
        self.runtime.spawn(work).await.unwrap_or_else(|_dropped| Err(self.why_unanswered()))
    }

    /// Runs `work` on this locker's runtime, and drops it with this future.
    ///
    /// On any other runtime a task does: the store's connections are this runtime's.
    pub(crate) async fn run_until_dropped<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.is_current() {
            return work.await;
        }
        let task = AbortOnDropHandle::new(self.runtime.spawn(work));
        task.await.unwrap_or_else(|_dropped| Err(self.why_unanswered()))
    }

    /// Runs `future`, whose timers are the caller's runtime's: this one may be held up. Outside of any
    /// runtime they are this one's.
    pub(crate) async fn with_timers<F: Future>(&self, future: F) -> F::Output {
        match Handle::try_current() {
            Ok(_here) => future.await,
            Err(_outside) => TokioContext::new(future, self.runtime.clone()).await,
        }
    }

    fn is_current(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.runtime.id())
    }

    /// What `work` answers, which is done to its end also where this is dropped.
    ///
    /// On any other runtime than this locker's it is a task from the beginning: its timers are its
    /// runtime's, and whoever has a runtime of its own for its leases does so because the other may
    /// be held up.
    pub(crate) async fn see_through<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.is_current() {
            let under_way = self.undertakings.errand(self.thread.clone());
            return Undertaking::new(self, work, under_way).await;
        }
        let errand = self.errand();
        let work = async move {
            let answer = work.await;
            drop(errand);
            answer
        };
        self.answer_of_task(work).await
    }
}

/// What a caller is told whose locker's runtime is no more.
pub(crate) fn runtime_has_ended() -> StoreError {
    StoreError::new(
        StoreErrorKind::Misconfigured,
        "the tokio runtime that this locker keeps its leases alive on has ended: \
         make a new locker, or give it a runtime that lasts (`Locker::with_runtime`)",
    )
}
