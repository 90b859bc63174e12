//! The record of a key, which a register stores.

use std::time::Duration;

use lease_core::store::{Beat, Nonce, RequestNumber};
use lease_core::{Attributes, FencingToken, LeaseKey, Lessee, StoreError, StoreErrorKind};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The record of a key: its current and its last grant, and its attributes.
///
/// A register decides how it stores the fields. [`to_json`](Self::to_json) is a text that has all of them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
// An earlier version of this crate must not drop a field that it does not know.
#[serde(deny_unknown_fields)]
#[expect(clippy::exhaustive_structs, reason = "a register must store each field")]
pub struct Record {
    /// The current grant; `None` if the key is free. It may have expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Held>,
    /// The last grant that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<Former>,
    /// The reservation of a key without a holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Reservation>,
    /// The attributes.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub attributes: Attributes,
    /// Whether the key has a record for [`LeaseTable`](lease_core::store::LeaseTable). If not, the record was deleted,
    /// or the key was never granted.
    pub exists: bool,
    /// A random number that is new in each write, so that no two writes have the same content.
    pub mark: Uuid,
}

/// A grant that was not released.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::exhaustive_structs, reason = "a register must store each field")]
pub struct Held {
    /// The lessee that holds the key.
    pub lessee: Lessee,
    /// The nonce of the claim that was granted.
    pub nonce: Nonce,
    /// The token of the grant.
    pub token: FencingToken,
    /// The number of the request that was granted.
    pub request: RequestNumber,
    /// The number of the last heartbeat.
    pub beat: Beat,
    /// How long the lease lasts without another heartbeat.
    pub ttl: Duration,
    /// When the lease expires by the clock of the service, in milliseconds since 1970. `None` if the service does not
    /// tell the time, or if the writer did not know it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// Whether an operator has evicted the holder.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evicted: bool,
}

/// The last grant that ended: it was released, adopted or transferred, or the key was granted after its expiry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::exhaustive_structs, reason = "a register must store each field")]
pub struct Former {
    /// The lessee that held the key.
    pub lessee: Lessee,
    /// The nonce of its claim, which is not granted again.
    pub nonce: Nonce,
    /// The token of its grant. The next token is larger.
    pub token: FencingToken,
}

/// A reservation of a key without a holder.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::exhaustive_structs, reason = "a register must store each field")]
pub struct Reservation {
    /// The only lessee that may obtain the key; `None` if no lessee may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Lessee>,
    /// How long the reservation lasts.
    pub length: Duration,
    /// When the reservation ends by the clock of the service, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

impl Record {
    /// A record without a lease, which no one has created.
    pub fn blank(mark: Uuid) -> Self {
        Self {
            holder: None,
            former: None,
            reserved: None,
            attributes: Attributes::new(),
            exists: false,
            mark,
        }
    }

    /// The token of the last grant; `None` before the first grant.
    pub fn token(&self) -> Option<FencingToken> {
        let held = self.holder.as_ref().map(|held| held.token);
        held.or_else(|| Some(self.former.as_ref()?.token))
    }

    /// The record as JSON.
    ///
    /// # Errors
    ///
    /// Never, unless the program has no memory: all fields have a JSON form.
    pub fn to_json(&self) -> Result<Vec<u8>, StoreError> {
        serde_json::to_vec(self).map_err(|error| StoreError::new(StoreErrorKind::Refused, error))
    }

    /// Reads the JSON that [`to_json`](Self::to_json) wrote under `key`.
    ///
    /// # Errors
    ///
    /// [`Corrupt`](StoreErrorKind::Corrupt) if the text is no record.
    pub fn from_json(key: &LeaseKey, json: &[u8]) -> Result<Self, StoreError> {
        serde_json::from_slice(json).map_err(|error| {
            let text = format!("the value of {:?} is no record of a lease: {error}", key.as_str());
            StoreError::new(StoreErrorKind::Corrupt, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_record_is_short() {
        let json = Record::blank(Uuid::nil()).to_json().unwrap();

        assert_eq!(
            String::from_utf8(json).unwrap(),
            r#"{"exists":false,"mark":"00000000-0000-0000-0000-000000000000"}"#
        );
    }

    #[test]
    fn unknown_field_is_an_error() {
        let key = "job".parse().unwrap();
        let mark = Uuid::nil();
        let json = format!(r#"{{"exists":true,"mark":"{mark}","parent":"a"}}"#);

        let error = Record::from_json(&key, json.as_bytes()).unwrap_err();

        assert_eq!(error.kind(), StoreErrorKind::Corrupt);
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("\"job\"") && source.contains("`parent`"), "{source}");
    }
}
