//! The record of an object whose spec another program has written, such as client-go's leader election.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use lease_core::store::{Beat, Nonce, RequestNumber};
use lease_core::{FencingToken, InvalidInput, Lessee};
use lease_register::{Held, Record};
use uuid::{Builder, Uuid};

use crate::name::hash_of;

/// Returns what `spec` says, and what `ours`, an earlier record of the key, still says beside it.
pub(crate) fn record_of(spec: &LeaseSpec, ours: Option<Record>) -> Result<Record, InvalidInput> {
    let mut record = ours.unwrap_or_else(|| Record::blank(Uuid::nil()));
    // A write of ours that was overwritten must not be taken for the last write.
    record.mark = Uuid::nil();
    record.reserved = None;
    let last = record.token().map_or(0, FencingToken::get);
    record.free();
    if let Some(identity) = spec.holder_identity.as_deref().filter(|name| !name.is_empty()) {
        let ttl = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        record.holder = Some(Held {
            lessee: Lessee::new(identity)?,
            nonce: nonce_of(spec),
            // Larger than our last token `last`. Our next token is the version that it replaces: it is larger again,
            // since our grant replaced the version `last`, and two writes followed.
            token: FencingToken::new(last + 1).unwrap_or(FencingToken::MAX),
            request: RequestNumber::new(0),
            beat: renewal_of(spec),
            ttl: ttl.map_or(DEFAULT_TTL, Duration::from_secs),
            expires_at: None,
            evicted: false,
        });
        record.exists = true;
    }
    Ok(record)
}

/// The same for all renewals of one term of the holder.
pub(crate) fn nonce_of(spec: &LeaseSpec) -> Nonce {
    let acquired = spec.acquire_time.as_ref().map(|time| time.0.as_microsecond());
    let term = format!("{acquired:?} {:?} {:?}", spec.lease_transitions, spec.holder_identity);
    Nonce::new(Builder::from_custom_bytes(hash_of(term.as_bytes()).to_be_bytes()).into_uuid())
}

/// Only a change of it counts. The time itself is of another machine's clock.
fn renewal_of(spec: &LeaseSpec) -> Beat {
    let time = spec.renew_time.as_ref().map_or(0, |time| time.0.as_microsecond());
    Beat::new(u64::try_from(time).unwrap_or(0))
}

/// The default of client-go, for an object without a duration.
const DEFAULT_TTL: Duration = Duration::from_secs(15);
