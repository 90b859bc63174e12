//! A record as a Lease object: what other programs read in the spec, and the whole record in an annotation.

use std::fmt::Display;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use lease_core::StoreErrorKind::{Corrupt, Refused, Unavailable, Unsupported};
use lease_core::store::micros_since_1970;
use lease_core::{LeaseKey, StoreError};
use lease_register::{Record, Version, Versioned};
use serde::{Deserialize, Serialize};

use crate::name::name_of;
use crate::neighbour;

/// What this library wrote last.
#[derive(Serialize, Deserialize)]
struct Written {
    record: Record,
    /// If the object has another spec, another program has written it since.
    spec: LeaseSpec,
}

/// Reads an object: its key, and its record.
pub(crate) fn read(lease: &Lease) -> Result<(LeaseKey, Versioned), StoreError> {
    let name = lease.metadata.name.as_deref().unwrap_or_default();
    let corrupt = |error: &dyn Display| {
        StoreError::new(Corrupt, format!("the Lease object {name:?} cannot be read: {error}"))
    };
    let key = LeaseKey::new(annotation(lease, KEY).unwrap_or(name));
    let key = key.map_err(|error| corrupt(&error))?;
    let spec = lease.spec.clone().unwrap_or_default();
    if spec.strategy.as_deref().is_some_and(|strategy| !strategy.is_empty()) {
        let text =
            format!("Kubernetes elects the holder of {name:?}, by its strategy: use another key");
        return Err(StoreError::new(Unsupported, text));
    }
    let written = annotation(lease, RECORD).map(serde_json::from_str::<Written>).transpose();
    let record = match written.map_err(|error| corrupt(&error))? {
        Some(written) if written.spec == spec => written.record,
        // Another program keeps our annotation, and writes the spec.
        ours => neighbour::record_of(&spec, ours.map(|ours| ours.record))
            .map_err(|error| corrupt(&error))?,
    };
    Ok((key, Versioned { record, version: version_of(lease)? }))
}

/// The object that has `record`, on the basis of the last object: a blank one is created.
pub(crate) fn write(
    key: &LeaseKey,
    mut lease: Lease,
    record: &Record,
) -> Result<Lease, StoreError> {
    let before = lease.spec.take().unwrap_or_default();
    // A grant has a token of its own.
    let token = record.token().map(|token| token.to_string());
    let is_granted = record.holder.is_some() && annotation(&lease, TOKEN) != token.as_deref();
    if record.holder.as_ref().is_some_and(|held| held.nonce == neighbour::nonce_of(&before)) {
        let text = "the holder does not use this library: end it by its own means";
        return Err(StoreError::new(Unsupported, text));
    }
    let spec = spec_of(record, before, is_granted);
    let written = Written { record: record.clone(), spec: spec.clone() };
    let json = serde_json::to_string(&written).map_err(|error| StoreError::new(Refused, error))?;
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(RECORD.to_owned(), json);
    annotations.extend(token.map(|token| (TOKEN.to_owned(), token)));
    annotations.insert(KEY.to_owned(), key.as_str().to_owned());
    lease.metadata.labels.get_or_insert_default().insert(LABEL.to_owned(), "register".to_owned());
    lease.metadata.name = Some(name_of(key));
    lease.spec = Some(spec);
    Ok(lease)
}

/// The spec by which client-go judges the lease, and that `kubectl get lease` shows.
fn spec_of(record: &Record, before: LeaseSpec, is_granted: bool) -> LeaseSpec {
    let now = i64::try_from(micros_since_1970()).unwrap_or_default();
    let now = Timestamp::from_microsecond(now).ok().map(MicroTime);
    let former = record.former.as_ref().map(|former| &former.lessee);
    let (holder, length) = match (&record.holder, &record.reserved) {
        (Some(held), _) => (Some(&held.lessee), held.ttl),
        // Otherwise, client-go would take the key during the reservation.
        (None, Some(reserved)) => (reserved.only.as_ref().or(former), reserved.length),
        (None, None) => (None, Duration::ZERO),
    };
    // Rounded up. Kubernetes refuses 0.
    let seconds = length.saturating_add(Duration::from_nanos(999_999_999)).as_secs().max(1);
    let transitions = before.lease_transitions.unwrap_or(0);
    LeaseSpec {
        holder_identity: holder.map(|lessee| lessee.as_str().to_owned()),
        lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
        acquire_time: if is_granted { now.clone() } else { before.acquire_time },
        renew_time: now,
        lease_transitions: Some(transitions.saturating_add(is_granted.into())),
        ..LeaseSpec::default()
    }
}

/// Without a version, the object may have been written.
pub(crate) fn version_of(lease: &Lease) -> Result<Version, StoreError> {
    let version = lease.metadata.resource_version.as_deref().map(Version::new);
    version.ok_or_else(|| StoreError::new(Unavailable, "the API server sent no resourceVersion"))
}

fn annotation<'a>(lease: &'a Lease, name: &str) -> Option<&'a str> {
    lease.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The record, as JSON, and the spec that was written with it.
const RECORD: &str = "lease-kubernetes/record";
/// The last fencing token, for people and other programs.
const TOKEN: &str = "lease-kubernetes/token";
/// The key, since the name of the object may be another one.
const KEY: &str = "lease-kubernetes/key";
/// Marks the objects that a list returns.
pub(crate) const LABEL: &str = "lease-kubernetes/kept-by";
