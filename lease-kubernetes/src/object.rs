//! A record as a Lease object: what other programs read in the spec, and the whole record in annotations.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use lease_core::store::{Nonce, micros_since_1970};
use lease_core::{LeaseKey, StoreError};
use lease_register::{Record, Version, Versioned};

use crate::error::{corrupt, unavailable, unsupported};
use crate::name::name_of;
use crate::neighbour;

/// The object of a key, as a basis of the next write.
#[derive(Debug)]
pub(crate) struct Object {
    lease: Lease,
    nonce: Option<Nonce>,
    writer: Writer,
}

/// Who wrote the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    Us,
    AnotherProgram,
}

/// Reads the object of `key`.
pub(crate) fn read(key: &LeaseKey, lease: Lease) -> Result<(Versioned, Object), StoreError> {
    let shown = key.as_str();
    if key_of(&lease).as_deref() != Some(shown) {
        return Err(corrupt(format!("the Lease object of {shown:?} belongs to another key")));
    }
    let spec = lease.spec.clone().unwrap_or_default();
    if spec.strategy.as_deref().is_some_and(|strategy| !strategy.is_empty()) {
        return Err(unsupported(format!(
            "Kubernetes elects the holder of {shown:?} itself, since its Lease object has a strategy: use another key"
        )));
    }
    let version = version_of(&lease)?;
    let ours = annotation(&lease, RECORD);
    let ours = ours.map(|json| Record::from_json(key, json.as_bytes())).transpose()?;
    let written: Option<LeaseSpec> =
        annotation(&lease, SPEC).and_then(|json| serde_json::from_str(json).ok());
    // Another program keeps our annotations, and writes the spec.
    let (record, writer) = match ours {
        Some(ours) if written.as_ref() == Some(&spec) => (ours, Writer::Us),
        ours => {
            let record = neighbour::record_of(&spec, ours);
            let record = record.map_err(|error| corrupt(format!("{shown:?}: {error}")))?;
            (record, Writer::AnotherProgram)
        }
    };
    let object = Object::new(lease, &record, writer);
    Ok((Versioned { record, version }, object))
}

/// The object that has `record`, on the basis of the last object: `None` creates one.
pub(crate) fn write(
    key: &LeaseKey,
    before: Option<Object>,
    record: &Record,
) -> Result<Lease, StoreError> {
    let nonce = record.holder.as_ref().map(|held| held.nonce);
    if let Some(before) = &before
        && before.writer == Writer::AnotherProgram
        && nonce.is_some()
        && before.nonce == nonce
    {
        return Err(unsupported(format!(
            "the holder of {:?} does not use this library: end it by its own means",
            key.as_str()
        )));
    }
    let is_granted = nonce.is_some() && before.as_ref().and_then(|before| before.nonce) != nonce;
    let mut lease = before.map(|before| before.lease).unwrap_or_default();
    let spec = spec_of(record, lease.spec.take().unwrap_or_default(), is_granted);
    let text = |json: Vec<u8>| String::from_utf8(json).map_err(|error| corrupt(error.to_string()));
    let json = serde_json::to_vec(&spec).map_err(|error| corrupt(error.to_string()))?;
    let name = name_of(key);
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(SPEC.to_owned(), text(json)?);
    annotations.insert(RECORD.to_owned(), text(record.to_json()?)?);
    if let Some(token) = record.token() {
        annotations.insert(TOKEN.to_owned(), token.to_string());
    }
    if name != key.as_str() {
        annotations.insert(KEY.to_owned(), key.as_str().to_owned());
    }
    lease.metadata.labels.get_or_insert_default().insert(LABEL.to_owned(), "register".to_owned());
    lease.metadata.name = Some(name);
    lease.spec = Some(spec);
    Ok(lease)
}

/// The spec by which client-go judges the lease, and that `kubectl get lease` shows.
fn spec_of(record: &Record, before: LeaseSpec, is_granted: bool) -> LeaseSpec {
    let now = i64::try_from(micros_since_1970()).ok();
    let now = now.and_then(|now| Timestamp::from_microsecond(now).ok()).map(MicroTime);
    // client-go must also respect a reservation, so the spec names its lessee as the holder.
    let (holder, length) = match (&record.holder, &record.reserved) {
        (Some(held), _) => (Some(&held.lessee), held.ttl),
        (None, Some(reserved)) => {
            let former = record.former.as_ref().map(|former| &former.lessee);
            (reserved.only.as_ref().or(former), reserved.length)
        }
        (None, None) => (None, std::time::Duration::ZERO),
    };
    let seconds = length.as_secs() + u64::from(length.subsec_nanos() > 0);
    let transitions = before.lease_transitions.unwrap_or(0);
    LeaseSpec {
        holder_identity: holder.map(|lessee| lessee.as_str().to_owned()),
        lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX).max(1)),
        acquire_time: if is_granted { now.clone() } else { before.acquire_time },
        renew_time: now,
        lease_transitions: Some(transitions.saturating_add(i32::from(is_granted))),
        ..LeaseSpec::default()
    }
}

/// The key of an object: its name, unless an annotation has the key.
pub(crate) fn key_of(lease: &Lease) -> Option<String> {
    let key = annotation(lease, KEY).map(str::to_owned);
    key.or_else(|| lease.metadata.name.clone())
}

/// Without a version, the object may have been written.
pub(crate) fn version_of(lease: &Lease) -> Result<Version, StoreError> {
    let version = lease.metadata.resource_version.as_deref().map(Version::new);
    version.ok_or_else(|| unavailable("the API server sent no resourceVersion"))
}

fn annotation<'a>(lease: &'a Lease, name: &str) -> Option<&'a str> {
    lease.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

impl Object {
    /// The object that the API server returned for a write of `record`.
    pub(crate) fn written(lease: Lease, record: &Record) -> Self {
        Self::new(lease, record, Writer::Us)
    }

    fn new(mut lease: Lease, record: &Record, writer: Writer) -> Self {
        // A write without them keeps them.
        lease.metadata.managed_fields = None;
        if let Some(annotations) = &mut lease.metadata.annotations {
            // The next write has another one.
            annotations.remove(RECORD);
        }
        Self { lease, nonce: record.holder.as_ref().map(|held| held.nonce), writer }
    }
}

/// The record, as JSON.
const RECORD: &str = "lease-kubernetes/record";
/// The spec that was written with the record: if the object has another one, another program wrote it.
const SPEC: &str = "lease-kubernetes/spec";
/// The last fencing token, for people and other programs.
const TOKEN: &str = "lease-kubernetes/token";
/// The key, if the name of the object is not the key.
const KEY: &str = "lease-kubernetes/key";
/// Marks the objects that a list returns.
const LABEL: &str = "lease-kubernetes/kept-by";
/// Selects the objects with the label.
pub(crate) const SELECTOR: &str = "lease-kubernetes/kept-by=register";
