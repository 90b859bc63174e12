//! Maps SQLite's errors to error kinds with advice. Only this file decides whether a retry may help.

use std::error::Error;
use std::fmt;
use std::path::Path;

use lease_core::{StoreError, StoreErrorKind};
use rusqlite::ffi;

/// A sentence with the file's name and advice.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) kind: StoreErrorKind,
    sentence: String,
}

impl Fault {
    pub(crate) fn new(kind: StoreErrorKind, sentence: impl Into<String>) -> Self {
        Self { kind, sentence: sentence.into() }
    }

    pub(crate) fn corrupt(sentence: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Corrupt, sentence)
    }

    pub(crate) fn denied(sentence: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Denied, sentence)
    }

    pub(crate) fn misconfigured(sentence: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Misconfigured, sentence)
    }

    pub(crate) fn unavailable(sentence: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Unavailable, sentence)
    }

    pub(crate) fn from_io(path: &Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind::{NotFound, PermissionDenied};

        let shown = path.display();
        match error.kind() {
            NotFound => {
                Self::misconfigured(format!("{shown} does not exist: create the folder first"))
            }
            PermissionDenied => Self::denied(format!(
                "{shown}: permission denied: let this user write to the file and to its folder"
            )),
            _ => Self::unavailable(format!("{shown}: {error}")),
        }
    }

    pub(crate) fn from_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let (kind, advice) = classify(error);
        let text = error.to_string();
        Self::new(kind, format!("{}: {}{advice}", path.display(), text.trim_end_matches('.')))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl Error for Fault {}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        Self::new(fault.kind, fault)
    }
}

pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    primary_code(error).is_some_and(|code| matches!(code, ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED))
}

fn primary_code(error: &rusqlite::Error) -> Option<i32> {
    Some(error.sqlite_error()?.extended_code & 0xff)
}

fn classify(error: &rusqlite::Error) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Corrupt, Denied, Misconfigured, Unavailable};

    let Some(code) = primary_code(error) else {
        // A column has another type than in the table of this version.
        return (Corrupt, FOREIGN);
    };
    match code {
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => (
            Unavailable,
            ": another process held the write lock for the whole time-out; look for a stopped process, and for \
             a long transaction of another program",
        ),
        ffi::SQLITE_FULL => (
            Unavailable,
            ": free space on the disk; until then, no key is granted and held leases expire",
        ),
        ffi::SQLITE_IOERR => (Unavailable, ": check the disk and its free space"),
        ffi::SQLITE_NOMEM => (Unavailable, ""),
        ffi::SQLITE_READONLY | ffi::SQLITE_PERM | ffi::SQLITE_AUTH => {
            (Denied, ": let this user write to the file and to its folder")
        }
        ffi::SQLITE_CANTOPEN => {
            (Denied, ": the folder must exist, and this user must be able to write to it")
        }
        ffi::SQLITE_NOTADB => (Misconfigured, ": this is no SQLite file; name another file"),
        ffi::SQLITE_CORRUPT => (
            Corrupt,
            ": stop all processes that use the file, then restore it from a backup or remove it",
        ),
        _ => (Corrupt, FOREIGN),
    }
}

const FOREIGN: &str = ": another program has written to the file; stop all processes that use it, then restore it \
                       from a backup or remove it";
