//! Where a locker's tasks live: a runtime, and the heartbeater on it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;

use crate::error::{StoreError, StoreErrorKind};
use crate::heartbeat::{Heartbeater, first_look};
use crate::inbox::{Command, Teller, inbox};
use crate::outstanding::{Errand, Outstanding};
use crate::settings::Settings;
use crate::undertaking::Undertaking;

#[derive(Debug, Clone)]
pub(crate) struct Home {
    runtime: Handle,
    heartbeater: Teller,
    outstanding: Outstanding,
    undertakings: Outstanding,
    leases: Arc<AtomicU64>,
}

impl Home {
    /// Starts a heartbeater on `runtime`, or on the one that this is called on.
    pub(crate) fn start(
        settings: &Arc<Settings>,
        runtime: Option<&Handle>,
        outstanding: Outstanding,
        undertakings: Outstanding,
    ) -> Result<Self, StoreError> {
        let runtime = match runtime {
            Some(runtime) => runtime.clone(),
            None => Handle::try_current()
                .map_err(|outside| StoreError::new(StoreErrorKind::Misconfigured, outside))?,
        };
        let (heartbeater, inbox) = inbox(first_look(&settings.options));
        runtime.spawn(Heartbeater::new(Arc::clone(settings), inbox).run());
        Ok(Self { runtime, heartbeater, outstanding, undertakings, leases: Arc::default() })
    }

    pub(crate) fn next_lease(&self) -> u64 {
        self.leases.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn errand(&self) -> Errand {
        self.outstanding.errand()
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

    /// What `work` answers, which is done to its end also where this is dropped.
    ///
    /// On any other runtime than this locker's it is a task from the beginning: its timers are its
    /// runtime's, and whoever has a runtime of its own for its leases does so because the other may
    /// be held up.
    pub(crate) async fn see_through<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        if Handle::try_current().is_ok_and(|here| here.id() == self.runtime.id()) {
            return Undertaking::new(self, work, self.undertakings.errand()).await;
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
