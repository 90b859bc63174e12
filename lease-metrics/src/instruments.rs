//! The instruments of one group of keys, and of the store.

use lease_core::{LossCause, StoreOperation};
use metrics::{Counter, Gauge, Histogram, SharedString, counter, gauge, histogram};

use crate::names;

pub(crate) struct GroupInstruments {
    pub(crate) granted: Counter,
    pub(crate) refused: Counter,
    pub(crate) failed: Counter,
    pub(crate) wait_seconds: Histogram,
    pub(crate) released_seconds: Histogram,
    pub(crate) lost_seconds: Histogram,
    pub(crate) held: Gauge,
    pub(crate) waiters: Gauge,
    pub(crate) at_risk: Gauge,
    pub(crate) margin_ratio: Histogram,
    pub(crate) heartbeat_failures: Counter,
    losses: Vec<(LossCause, Counter)>,
}

impl GroupInstruments {
    /// Registers all instruments, so that each is reported as zero before its first event.
    pub(crate) fn register(group: &SharedString) -> Self {
        let obtain = |result| counter!(names::OBTAIN, "group" => group.clone(), "result" => result);
        let held = |end| histogram!(names::HELD_SECONDS, "group" => group.clone(), "end" => end);
        let loss = |cause: LossCause| counter!(names::LOST, "group" => group.clone(), "cause" => cause.name());
        Self {
            granted: obtain("granted"),
            refused: obtain("held"),
            failed: obtain("error"),
            wait_seconds: histogram!(names::WAIT_SECONDS, "group" => group.clone()),
            released_seconds: held("released"),
            lost_seconds: held("lost"),
            held: gauge!(names::HELD, "group" => group.clone()),
            waiters: gauge!(names::WAITERS, "group" => group.clone()),
            at_risk: gauge!(names::AT_RISK, "group" => group.clone()),
            margin_ratio: histogram!(names::HEARTBEAT_MARGIN_RATIO, "group" => group.clone()),
            heartbeat_failures: counter!(names::HEARTBEAT_FAILURES, "group" => group.clone()),
            losses: LossCause::ALL.map(|cause| (cause, loss(cause))).into(),
        }
    }

    pub(crate) fn count_loss(&self, cause: LossCause) {
        if let Some((_, losses)) = self.losses.iter().find(|(of, _)| *of == cause) {
            losses.increment(1);
        }
    }
}

pub(crate) struct StoreInstruments {
    pub(crate) heartbeat_seconds: Histogram,
    /// In the order of [`StoreOperation::ALL`]: of answered requests, and of failed ones.
    requests: [[Histogram; 2]; StoreOperation::ALL.len()],
}

impl StoreInstruments {
    pub(crate) fn register(store: &SharedString) -> Self {
        let request = |operation: StoreOperation, result| {
            let (store, operation) = (store.clone(), operation.name());
            histogram!(
                names::STORE_REQUEST_SECONDS,
                "store" => store, "operation" => operation, "result" => result
            )
        };
        let both = |operation| [request(operation, "ok"), request(operation, "error")];
        Self {
            heartbeat_seconds: histogram!(names::HEARTBEAT_SECONDS),
            requests: StoreOperation::ALL.map(both),
        }
    }

    pub(crate) fn record(&self, operation: StoreOperation, seconds: f64, is_ok: bool) {
        if let Some([ok, error]) = self.requests.get(operation as usize) {
            let request = if is_ok { ok } else { error };
            request.record(seconds);
        }
    }
}
