//! What a lease is called in Redis: its keys and its channel, all under one hash tag.

use lease_core::LeaseKey;

/// Names everything under one prefix.
#[derive(Debug, Clone)]
pub(crate) struct KeySpace {
    prefix: String,
}

impl KeySpace {
    pub(crate) fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into() }
    }

    /// Who holds it, its token, and what was released last: kept for days after the last use.
    pub(crate) fn lease(&self, key: &LeaseKey) -> String {
        self.name(key, "")
    }

    /// What else is on it: never expires.
    pub(crate) fn attributes(&self, key: &LeaseKey) -> String {
        self.name(key, ":attributes")
    }

    /// Where its being freed is published.
    pub(crate) fn channel(&self, key: &LeaseKey) -> String {
        self.name(key, ":freed")
    }

    /// The names of all records.
    pub(crate) fn index(&self) -> String {
        format!("{}index", self.prefix)
    }

    /// What is between the braces decides the slot. A brace of the key's own would end that too
    /// early: `}a` and its attributes would be in two slots.
    fn name(&self, key: &LeaseKey, part: &str) -> String {
        let key = key.as_str();
        if key.contains(['{', '}', '%']) {
            let key = key.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
            return format!("{}{{{key}}}{part}", self.prefix);
        }
        format!("{}{{{key}}}{part}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_of_a_key_is_under_one_hash_tag_whatever_its_name() {
        let names = KeySpace::new("lease:");
        for (key, tag) in [("a/b", "a/b"), ("}a", "%7Da"), ("{k}", "%7Bk%7D"), ("50%", "50%25")] {
            let key = LeaseKey::new(key).unwrap();

            assert_eq!(names.lease(&key), format!("lease:{{{tag}}}"));
            assert_eq!(names.attributes(&key), format!("lease:{{{tag}}}:attributes"));
        }
    }
}
