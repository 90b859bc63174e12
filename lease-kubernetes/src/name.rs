//! The name of a key's object.

use std::hash::Hasher;

use lease_core::LeaseKey;
use siphasher::sip128::{Hasher128, SipHasher13};

/// The key itself, if it is a valid name of an object. Otherwise a readable part of it and its hash.
pub(crate) fn name_of(key: &LeaseKey) -> String {
    let text = key.as_str();
    // A key with the form of another key's name would share its object.
    if is_name(text) && !text.starts_with("hashed-") {
        return text.to_owned();
    }
    let readable = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let shown: String = text.chars().map(readable).take(SHOWN).collect();
    format!("hashed-{shown}-{:032x}", hash_of(text.as_bytes()))
}

/// A hash that is the same in every process and version.
pub(crate) fn hash_of(bytes: &[u8]) -> u128 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish128().as_u128()
}

/// The rule of Kubernetes for names of objects: a DNS subdomain of RFC 1123.
fn is_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// The rule for each part of a name, and for namespaces.
pub(crate) fn is_label(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_plain)
        && text.ends_with(is_plain)
        && text.chars().all(|c| is_plain(c) || c == '-')
}

/// With the hash, a name has at most 240 characters, of the 253 that Kubernetes allows.
const SHOWN: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: &str) -> String {
        name_of(&LeaseKey::new(key).unwrap())
    }

    #[test]
    fn valid_name_is_kept() {
        for key in ["payroll", "payroll-2026.eu", "0", "a.b-c"] {
            assert_eq!(name(key), key);
        }
    }

    #[test]
    fn other_key_has_a_valid_name_of_its_own() {
        let long = "k".repeat(LeaseKey::MAX_BYTES);
        let keys = ["A", "a/b", "a//b", "a.", ".", "a..b", "-", "日本", "a_b", "a b", &long];
        for key in keys {
            let name = name(key);
            assert!(is_name(&name), "{key}: {name}");
            assert_ne!(name, key);
        }
        assert!(name("Payroll/2026").starts_with("hashed-payroll-2026-"));
    }

    /// The name is stored: another hash in a later version would lose the key.
    #[test]
    fn hash_never_changes() {
        assert_eq!(name("a/b"), NAME_OF_A_B);
    }

    #[test]
    fn key_like_the_name_of_another_key_is_hashed() {
        let first = name("a/b");
        assert_ne!(name(&first), first);
    }

    const NAME_OF_A_B: &str = "hashed-a-b-ba01d296b8524c51e7b3afab5f45f0ca";
}
