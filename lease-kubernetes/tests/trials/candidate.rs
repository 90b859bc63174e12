//! A model of one candidate of client-go's `leaderelection`: `tryAcquireOrRenew`, `RenewDeadline`, `ReleaseOnCancel`.

use std::time::Duration;

use lease_test_servers::kubernetes::ApiServer;
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::{NAMESPACE, TTL};

pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    /// Whether a write also changes our annotation, to break a rule.
    is_forged: bool,
    /// The object that was read or written last. The next write has its version.
    object: Value,
    /// The spec that was observed last, and since when.
    observed: Value,
    since: Duration,
    /// A write that is on its way.
    late: Option<Value>,
    leads_until: Option<Duration>,
    /// The process was paused since its last renewal: it may lead on after its successor has begun.
    was_paused: bool,
    next: Duration,
}

impl Candidate {
    pub(crate) fn new(name: &'static str, is_forged: bool) -> Self {
        let (object, observed) = (Value::Null, Value::Null);
        let (since, next) = (Duration::ZERO, Duration::ZERO);
        let (late, leads_until, was_paused) = (None, None, false);
        Self { name, is_forged, object, observed, since, late, leads_until, was_paused, next }
    }

    /// Whether the process leads, unless a pause made it miss its end.
    pub(crate) fn leads(&self, now: Duration) -> bool {
        !self.was_paused && self.leads_until.is_some_and(|until| now < until)
    }

    /// Tries to acquire or renew, or releases. Returns whether it has become the leader.
    pub(crate) fn step(
        &mut self,
        server: &ApiServer,
        now: Duration,
        pause: Option<Duration>,
        random: &mut StdRng,
    ) -> bool {
        if let Some(pause) = pause {
            self.next = self.next.max(pause);
            self.was_paused = true;
        }
        if now < self.next {
            return false;
        }
        self.next = now + RETRY_PERIOD.mul_f64(random.random_range(1.0..1.5));
        if self.leads_until.is_some_and(|until| now >= until) {
            self.leads_until = None;
        }
        let object = match self.late.take() {
            Some(late) => late,
            None if self.leads_until.is_some() && random.random_bool(0.1) => {
                self.leads_until = None;
                self.next = now + TTL.mul_f64(random.random_range(0.0..2.0));
                self.with_spec("", 1, now, false)
            }
            None => match self.next_write(server, now) {
                Some(object) => object,
                None => return false,
            },
        };
        if random.random_bool(0.1) {
            self.late = Some(object);
            return false;
        }
        self.send(server, now, object)
    }

    /// The write of `tryAcquireOrRenew`; `None` if another process leads.
    fn next_write(&mut self, server: &ApiServer, now: Duration) -> Option<Value> {
        // The leader renews without a read. A write that was refused has cleared the object.
        if self.leads_until.is_some() && !self.object.is_null() {
            return Some(self.with_spec(self.name, TTL.as_secs(), now, false));
        }
        let Some(found) = server.object(NAMESPACE, "job") else {
            self.object = json!({ "metadata": { "name": "job" } });
            return Some(self.with_spec(self.name, TTL.as_secs(), now, true));
        };
        if found["spec"] != self.observed {
            self.observed = found["spec"].clone();
            self.since = now;
        }
        self.object = found;
        let holder = self.observed["holderIdentity"].as_str().unwrap_or_default();
        let length = self.observed["leaseDurationSeconds"].as_u64().unwrap_or(0);
        let is_valid = now < self.since + Duration::from_secs(length);
        if !holder.is_empty() && holder != self.name && is_valid {
            return None;
        }
        let is_new = holder != self.name;
        Some(self.with_spec(self.name, TTL.as_secs(), now, is_new))
    }

    fn with_spec(&self, holder: &str, seconds: u64, now: Duration, is_new: bool) -> Value {
        let mut object = self.object.clone();
        let before = object["spec"].clone();
        let transitions = before["leaseTransitions"].as_u64();
        object["spec"] = json!({
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": if is_new { time(now).into() } else { before["acquireTime"].clone() },
            "renewTime": time(now),
            "leaseTransitions": transitions.map_or(0, |last| last + u64::from(is_new)),
        });
        let ours = &mut object["metadata"]["annotations"]["lease-kubernetes/record"];
        if self.is_forged
            && let Some(text) = ours.as_str()
        {
            let mut written: Value = serde_json::from_str(text).unwrap();
            written["spec"] = object["spec"].clone();
            object["metadata"]["annotations"]["lease-kubernetes/record"] =
                written.to_string().into();
        } else if ours.is_null() {
            drop(object["metadata"].as_object_mut().unwrap().remove("annotations"));
        }
        object
    }

    fn send(&mut self, server: &ApiServer, now: Duration, object: Value) -> bool {
        let Ok(written) = server.write(NAMESPACE, object) else {
            self.object = Value::Null;
            return false;
        };
        self.observed = written["spec"].clone();
        self.since = now;
        self.object = written;
        if self.observed["holderIdentity"] != self.name {
            return false;
        }
        let is_new = self.leads_until.is_none();
        self.leads_until = Some(now + RENEW_DEADLINE);
        self.was_paused = false;
        is_new
    }
}

/// A wall clock: nobody compares it with another one.
fn time(now: Duration) -> String {
    let seconds = now.as_secs();
    let (minute, second) = (seconds / 60, seconds % 60);
    format!("2026-11-28T10:{minute:02}:{second:02}.{:06}Z", now.subsec_micros())
}

const RETRY_PERIOD: Duration = Duration::from_millis(500);
const RENEW_DEADLINE: Duration = Duration::from_secs(3);
