//! The names of a lease: its key and its lessee.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::invalid::InvalidInput;

/// Names a job, a shard, a file or another resource that only one lessee at a time may hold.
///
/// 1 to [1,024](LeaseKey::MAX_BYTES) bytes of UTF-8 without control characters. Stores allow longer names,
/// so a store can add a prefix: `DynamoDB` allows 2,048 bytes.
///
/// # Examples
///
/// ```
/// use lease_core::LeaseKey;
///
/// let key: LeaseKey = "payroll/2026-11".parse()?;
/// assert_eq!(key.as_str(), "payroll/2026-11");
/// assert_eq!(
///     LeaseKey::new("").unwrap_err().to_string(),
///     "lease key \"\" is empty: a lease key is 1 to 1024 bytes without control characters",
/// );
/// # Ok::<_, lease_core::InvalidInput>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Arc<str>", into = "Arc<str>")]
pub struct LeaseKey(Arc<str>);

/// Names a client that claims leases, usually one process.
///
/// 1 to [1,024](Lessee::MAX_BYTES) bytes of UTF-8 without control characters. Two processes may
/// have the same name: stores distinguish grants by the [`Nonce`](crate::store::Nonce). Only a
/// [`transfer`](crate::Lease::transfer) uses the name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Arc<str>", into = "Arc<str>")]
pub struct Lessee(Arc<str>);

impl LeaseKey {
    /// The longest key, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Checks and keeps `key`.
    ///
    /// # Errors
    ///
    /// If `key` is empty, longer than [`MAX_BYTES`](Self::MAX_BYTES), or contains a control
    /// character.
    pub fn new(key: impl Into<Arc<str>>) -> Result<Self, InvalidInput> {
        checked_name("lease key", key.into(), Self::MAX_BYTES).map(Self)
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Lessee {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Checks and keeps `name`.
    ///
    /// # Errors
    ///
    /// If `name` is empty, longer than [`MAX_BYTES`](Self::MAX_BYTES), or contains a control
    /// character.
    pub fn new(name: impl Into<Arc<str>>) -> Result<Self, InvalidInput> {
        checked_name("lessee", name.into(), Self::MAX_BYTES).map(Self)
    }

    /// Returns `host-pid-8hex`, which is unique.
    pub(crate) fn of_this_process(salt: u32) -> Self {
        let host: String = gethostname::gethostname()
            .to_string_lossy()
            .chars()
            .filter(|character| !character.is_control())
            .take(200) // at most 4 bytes per character: far below the limit
            .collect();
        Self(format!("{host}-{}-{salt:08x}", std::process::id()).into())
    }

    /// The lessee's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn checked_name(what: &str, name: Arc<str>, max_bytes: usize) -> Result<Arc<str>, InvalidInput> {
    let fault = if name.is_empty() {
        "is empty".to_owned()
    } else if name.len() > max_bytes {
        format!("has {} bytes", name.len())
    } else if let Some((at, _)) = name.char_indices().find(|(_, c)| c.is_control()) {
        format!("has a control character at byte {at}")
    } else {
        return Ok(name);
    };
    let mut shown: String = name.chars().take(40).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    Err(InvalidInput::new(format!(
        "{what} {shown:?} {fault}: a {what} is 1 to {max_bytes} bytes without control characters"
    )))
}

macro_rules! name_conversions {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidInput;

            fn from_str(text: &str) -> Result<Self, InvalidInput> {
                Self::new(text)
            }
        }

        impl TryFrom<Arc<str>> for $name {
            type Error = InvalidInput;

            fn try_from(text: Arc<str>) -> Result<Self, InvalidInput> {
                Self::new(text)
            }
        }

        impl From<$name> for Arc<str> {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_conversions!(LeaseKey);
name_conversions!(Lessee);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_key_is_refused_with_its_rule() {
        let refused = |key: &str| LeaseKey::new(key).unwrap_err().to_string();
        let rule = "a lease key is 1 to 1024 bytes without control characters";

        assert_eq!(refused(""), format!("lease key \"\" is empty: {rule}"));
        assert_eq!(
            refused("a\nb"),
            format!("lease key \"a\\nb\" has a control character at byte 1: {rule}"),
        );
        let long = "k".repeat(1025);
        assert_eq!(
            refused(&long),
            format!("lease key \"{}…\" has 1025 bytes: {rule}", "k".repeat(40)),
        );
        assert!(LeaseKey::new("k".repeat(1024)).is_ok());
    }

    #[test]
    fn invalid_lessee_is_refused() {
        assert_eq!(
            Lessee::new("").unwrap_err().to_string(),
            "lessee \"\" is empty: a lessee is 1 to 1024 bytes without control characters",
        );
    }

    #[test]
    fn deserialized_key_is_checked() {
        assert!(serde_json::from_str::<LeaseKey>("\"a\"").is_ok());
        assert!(serde_json::from_str::<LeaseKey>("\"\"").is_err());
    }
}
