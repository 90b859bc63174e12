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

#[derive(Debug, Clone)]
pub(crate) struct Home {
    runtime: Handle,
    heartbeater: Teller,
    outstanding: Outstanding,
    leases: Arc<AtomicU64>,
}

impl Home {
    /// Starts a heartbeater on `runtime`, or on the one that this is called on.
    pub(crate) fn start(
        settings: &Arc<Settings>,
        runtime: Option<&Handle>,
        outstanding: Outstanding,
    ) -> Result<Self, StoreError> {
        let runtime = match runtime {
            Some(runtime) => runtime.clone(),
            None => Handle::try_current()
                .map_err(|outside| StoreError::new(StoreErrorKind::Misconfigured, outside))?,
        };
        let (heartbeater, inbox) = inbox(first_look(&settings.options));
        runtime.spawn(Heartbeater::new(Arc::clone(settings), inbox).run());
        Ok(Self { runtime, heartbeater, outstanding, leases: Arc::default() })
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
}

/// What a caller is told whose locker's runtime is no more.
pub(crate) fn runtime_has_ended() -> StoreError {
    StoreError::new(
        StoreErrorKind::Misconfigured,
        "the tokio runtime that this locker keeps its leases alive on has ended: \
         make a new locker, or give it a runtime that lasts (`Locker::with_runtime`)",
    )
}
