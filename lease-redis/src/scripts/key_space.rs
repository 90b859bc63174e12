//! The names of a lease's keys and channel in Redis. All names of a lease have the same hash tag.

use std::borrow::Cow;
use std::fmt;

use lease_core::LeaseKey;

#[derive(Debug, Clone)]
pub(crate) struct KeySpace {
    prefix: String,
}

#[derive(Debug)]
pub(crate) struct KeyName<'a> {
    prefix: &'a str,
    tag: Cow<'a, str>,
    part: &'static str,
}

impl KeySpace {
    pub(crate) fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into() }
    }

    /// A lock or a record, as the head of `common.lua` describes them.
    pub(crate) fn lease<'a>(&'a self, key: &'a LeaseKey) -> KeyName<'a> {
        self.name(key, "")
    }

    pub(crate) fn attributes<'a>(&'a self, key: &'a LeaseKey) -> KeyName<'a> {
        self.name(key, ":attributes")
    }

    pub(crate) fn queue<'a>(&'a self, key: &'a LeaseKey) -> KeyName<'a> {
        self.name(key, ":queue")
    }

    pub(crate) fn waiters<'a>(&'a self, key: &'a LeaseKey) -> KeyName<'a> {
        self.name(key, ":waiters")
    }

    /// The grants of a client's queued claims are published on this channel.
    pub(crate) fn grants(&self, client: &str) -> String {
        format!("{}grants:{client}", self.prefix)
    }

    pub(crate) fn channel(&self, key: &LeaseKey) -> String {
        self.name(key, ":freed").to_string()
    }

    /// The clients of a quorum share this record on each node.
    pub(crate) fn quorum(&self) -> String {
        format!("{}quorum", self.prefix)
    }

    pub(crate) fn tokens(&self) -> String {
        format!("{}tokens", self.prefix)
    }

    /// This key shows that this version has prepared the server's records.
    pub(crate) fn form(&self) -> String {
        format!("{}form", self.prefix)
    }

    /// Returns `None` if the name is not that of a lease.
    pub(crate) fn key_of(&self, name: &str) -> Option<LeaseKey> {
        let tag = name.strip_prefix(&self.prefix)?.strip_prefix('{')?.strip_suffix('}')?;
        let key = tag.replace("%7D", "}").replace("%7B", "{").replace("%25", "%");
        LeaseKey::new(key).ok()
    }

    pub(crate) fn pattern(&self, prefix: &str) -> String {
        let tag = prefix.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
        let text = format!("{}{{{tag}", self.prefix);
        let mut pattern = String::with_capacity(text.len() + 2);
        for letter in text.chars() {
            if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^') {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern + "*}"
    }

    pub(crate) fn index(&self) -> String {
        format!("{}index", self.prefix)
    }

    /// The text between the braces determines the slot. Without escapes, `}a` and its attributes would be in
    /// different slots.
    fn name<'a>(&'a self, key: &'a LeaseKey, part: &'static str) -> KeyName<'a> {
        let key = key.as_str();
        let tag = if key.contains(['{', '}', '%']) {
            key.replace('%', "%25").replace('{', "%7B").replace('}', "%7D").into()
        } else {
            key.into()
        };
        KeyName { prefix: &self.prefix, tag, part }
    }
}

impl fmt::Display for KeyName<'_> {
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
    fn all_names_of_a_key_have_one_hash_tag() {
        let names = KeySpace::new("lease:");
        for (key, tag) in [("a/b", "a/b"), ("}a", "%7Da"), ("{k}", "%7Bk%7D"), ("50%", "50%25")] {
            let key = LeaseKey::new(key).unwrap();

            assert_eq!(names.lease(&key).to_string(), format!("lease:{{{tag}}}"));
            assert_eq!(names.attributes(&key).to_string(), format!("lease:{{{tag}}}:attributes"));
        }
    }
}
