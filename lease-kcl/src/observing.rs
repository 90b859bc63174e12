//! What this process has observed of a row: whether its lease is free, reserved, held or expired, and for whom.

use std::time::Duration;

use lease_core::store::{Beat, Grant, Observation};
use lease_core::{Holder, LeaseKey, Lessee};

use crate::liveness::{LeaseState, Liveness, LivenessSign};
use crate::row::Row;
use crate::store::KclTable;

impl KclTable {
    /// The caller has just received the row.
    pub(crate) fn state(&self, lease_key: &str, row: &Row) -> LeaseState {
        let token = row.token_or_zero();
        let left = self.observe(lease_key, row);
        if row.reserved().is_some() {
            return if left.is_zero() { LeaseState::Free } else { LeaseState::Reserved(left) };
        }
        // In a hand-over of KCL 3, the shard's processor increments the counter. If the counter stops, the
        // lease expires here, as in KCL 3.
        let Some(owner) = row.processor.as_ref().or(row.owner.as_ref()) else {
            return LeaseState::Free;
        };
        let holder = Holder::new(owner.clone(), Some(left)).named_by(token);
        if left.is_zero() { LeaseState::Expired(holder) } else { LeaseState::Held(holder) }
    }

    /// Returns the time after which the lease of `row` expires, if the row does not change until then.
    fn observe(&self, lease_key: &str, row: &Row) -> Duration {
        let shared = &self.shared;
        let liveness = row.liveness();
        let known = shared.observations.get(lease_key);
        let ttl = match (row.reserved().or_else(|| row.ttl()), known) {
            (Some(ttl), _) => ttl,
            (None, Some(known)) if known.state == liveness => {
                known.ttl.unwrap_or(shared.settings.failover)
            }
            (None, Some(known)) if known.state.renewer() != liveness.renewer() => {
                self.patience_with_new_owner()
            }
            (None, _) => shared.settings.failover,
        };
        let now = self.now();
        let since = shared.observations.observe(lease_key, liveness, Some(ttl), now);
        self.with_margin(ttl).saturating_sub(now.since(since))
    }

    /// A worker of KCL 3 finds an assigned lease after up to a failover time, and renews it a third later.
    fn patience_with_new_owner(&self) -> Duration {
        self.shared.settings.failover * 3 / 2
    }

    /// Whether `lessee` may obtain the lease although the plan of our workers does not say so: another worker has
    /// assigned the lease to `lessee`. `is_free` is the state in the last listing.
    ///
    /// A row with a changing counter belongs to a KCL worker of the same name.
    pub(crate) fn is_assigned(&self, key: &LeaseKey, lessee: &Lessee, is_free: bool) -> bool {
        let Some(seen) = self.last_seen(key) else { return false };
        let is_named = seen.state.owner.as_ref() == Some(lessee) && seen.state.processor.is_none();
        is_named
            && match seen.state.sign {
                LivenessSign::Heartbeat { reserved, .. } => reserved,
                LivenessSign::KclCounter(_) => is_free || self.has_new_owner(&seen),
            }
    }

    /// Returns the worker for which the last listing showed the lease reserved.
    pub(crate) fn reserved_for(&self, key: &LeaseKey) -> Option<Lessee> {
        let seen = self.last_seen(key)?;
        let LivenessSign::Heartbeat { reserved: true, .. } = seen.state.sign else { return None };
        let has_passed = self.now().since(seen.since) >= self.with_margin(seen.ttl?);
        seen.state.owner.filter(|_| !has_passed)
    }

    /// Whether this process has seen how a KCL worker wrote another owner, and no change since.
    fn has_new_owner(&self, seen: &Observation<Liveness>) -> bool {
        matches!(seen.state.sign, LivenessSign::KclCounter(_))
            && seen.ttl == Some(self.patience_with_new_owner())
    }

    fn last_seen(&self, key: &LeaseKey) -> Option<Observation<Liveness>> {
        let lease_key = key.as_str().strip_prefix(&self.shared.shards)?;
        self.shared.observations.get(lease_key)
    }

    pub(crate) fn holder_of(&self, lease_key: &str, row: &Row) -> Option<Holder> {
        match self.state(lease_key, row) {
            LeaseState::Held(holder) => Some(holder),
            LeaseState::Free | LeaseState::Reserved(_) | LeaseState::Expired(_) => None,
        }
    }

    /// Whether this process has observed that `grant` expired. The holder got no answer to a later heartbeat,
    /// so its deadline has passed. A late request does not make the grant valid again.
    pub(crate) fn has_expired(&self, lease_key: &str, grant: &Grant) -> bool {
        let Some(watched) = self.shared.observations.get(lease_key) else { return false };
        let nonce = grant.nonce.to_string();
        let is_its_own = matches!(
            &watched.state.sign,
            LivenessSign::Heartbeat { nonce: of, token, reserved: false, .. }
                if *of == nonce && *token == grant.token
        );
        is_its_own
            && self.now().since(watched.since) >= self.with_margin(watched.ttl.unwrap_or(grant.ttl))
    }

    pub(crate) fn observe_heartbeat(&self, lease_key: &str, grant: &Grant, beat: Beat) {
        let nonce = grant.nonce.to_string();
        let sign = LivenessSign::Heartbeat {
            nonce,
            token: grant.token,
            beat: beat.get(),
            reserved: false,
        };
        let liveness = Liveness { owner: Some(grant.lessee.clone()), processor: None, sign };
        self.shared.observations.observe(lease_key, liveness, Some(grant.ttl), self.now());
    }
}
