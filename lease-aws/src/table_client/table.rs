//! The table to which a client sends its requests.

/// A table whose hash key is a string.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "for the crates of this repository")]
pub struct Table {
    /// The table's name.
    pub name: String,
    /// The column of the hash key.
    pub key: String,
    /// Remedies for the table's errors.
    pub advice: Advice,
}

/// Remedies that depend on the program that made the table.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_structs, reason = "for the crates of this repository")]
pub struct Advice {
    /// The remedy if the table does not exist.
    pub missing: &'static str,
    /// The remedy if the table has another hash key.
    pub other_key: &'static str,
}
