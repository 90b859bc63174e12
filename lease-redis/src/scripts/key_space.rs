//! What a lease is called in Redis: its keys and its channel, all under one hash tag.

use std::borrow::Cow;
use std::fmt;

use lease_core::LeaseKey;

/// Names everything under one prefix.
#[derive(Debug, Clone)]
pub(crate) struct KeySpace {
    prefix: String,
}

/// What something of a lease is called.
#[derive(Debug)]
pub(crate) struct Name<'a> {
    prefix: &'a str,
    tag: Cow<'a, str>,
    part: &'static str,
}

impl KeySpace {
    pub(crate) fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into() }
    }

    /// Who holds it, its token, and what was released last: kept for days after the last use.
    pub(crate) fn lease<'a>(&'a self, key: &'a LeaseKey) -> Name<'a> {
        self.name(key, "")
    }

    /// What else is on it: never expires.
    pub(crate) fn attributes<'a>(&'a self, key: &'a LeaseKey) -> Name<'a> {
        self.name(key, ":attributes")
    }

    /// Where its being freed is published.
    pub(crate) fn channel(&self, key: &LeaseKey) -> String {
        self.name(key, ":freed").to_string()
    }

    /// The names of all records.
    pub(crate) fn index(&self) -> String {
        format!("{}index", self.prefix)
    }

    /// What is between the braces decides the slot. A brace of the key's own would end that too
    /// early: `}a` and its attributes would be in two slots.
    fn name<'a>(&'a self, key: &'a LeaseKey, part: &'static str) -> Name<'a> {
        let key = key.as_str();
        let tag = if key.contains(['{', '}', '%']) {
            key.replace('%', "%25").replace('{', "%7B").replace('}', "%7D").into()
        } else {
            key.into()
        };
        Name { prefix: &self.prefix, tag, part }
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in [self.prefix, "{", &self.tag, "}", self.part] {
            f.write_str(piece)?;
        }
        Ok(())
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

            assert_eq!(names.lease(&key).to_string(), format!("lease:{{{tag}}}"));
            assert_eq!(names.attributes(&key).to_string(), format!("lease:{{{tag}}}:attributes"));
        }
    }
}
