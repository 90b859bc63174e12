//! A register that counts its requests, and changes what happens to them.

use std::future::ready;
use std::sync::Mutex;

use async_trait::async_trait;
use lease_core::store::{BoxStream, Freed, Nonce};
use lease_core::{LeaseKey, StoreError, StoreErrorKind};
use lease_register::conformance::MemoryRegister;
use lease_register::{Record, Register, RegisterStore, Replaced, Version, Versioned, Versions};
use tokio::sync::Notify;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fate {
    Sound,
    /// The client repeats each replacement by itself, since the first answer was lost.
    Repeats,
    /// Each replacement is applied, and its answer is lost.
    LosesAnswers,
    /// Somebody else is always faster.
    Conflicts,
    /// Somebody else is always faster. Before the seventh replacement, it was an earlier request of the same claim.
    ConflictsWithItself,
    /// Reads return the first record that was read.
    ReadsTheFirst,
    /// A watch is registered when the test allows it.
    DelaysWatches,
    /// A watch wakes at once, although nothing has changed.
    WakesAtOnce,
}

/// A register that counts its requests.
#[derive(Debug)]
pub(crate) struct Counting {
    register: MemoryRegister,
    fate: Mutex<Fate>,
    sent: Mutex<Vec<&'static str>>,
    pub(crate) first: Mutex<Option<Versioned>>,
    pub(crate) watches: Notify,
}

impl Counting {
    pub(crate) fn new(register: MemoryRegister) -> Self {
        let (fate, sent, first) = (Mutex::new(Fate::Sound), Mutex::default(), Mutex::default());
        Self { register, fate, sent, first, watches: Notify::new() }
    }

    pub(crate) fn store(register: MemoryRegister) -> RegisterStore<Self> {
        RegisterStore::new(Self::new(register))
    }

    pub(crate) fn set(&self, fate: Fate) {
        *self.fate.lock().unwrap() = fate;
    }

    fn fate(&self) -> Fate {
        *self.fate.lock().unwrap()
    }

    pub(crate) fn take_sent(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }
}

#[async_trait]
impl Register for Counting {
    async fn read(&self, key: &LeaseKey) -> Result<Option<Versioned>, StoreError> {
        self.sent.lock().unwrap().push("read");
        let found = self.register.read(key).await?;
        let first = {
            let mut first = self.first.lock().unwrap();
            *first = first.take().or_else(|| found.clone());
            first.clone()
        };
        Ok(if self.fate() == Fate::ReadsTheFirst { first } else { found })
    }

    async fn replace(
        &self,
        key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Replaced, StoreError> {
        let replacements = {
            let mut sent = self.sent.lock().unwrap();
            sent.push("replace");
            sent.iter().filter(|sent| **sent == "replace").count()
        };
        if self.fate() == Fate::ConflictsWithItself && replacements == 7 {
            let earlier = Record { mark: Nonce::random().get(), ..record.clone() };
            drop(self.register.replace(key, expected, &earlier).await?);
        }
        if matches!(self.fate(), Fate::Conflicts | Fate::ConflictsWithItself) {
            return Ok(Replaced::Conflict);
        }
        let replaced = self.register.replace(key, expected, record).await?;
        match self.fate() {
            Fate::Repeats => self.register.replace(key, expected, record).await,
            Fate::LosesAnswers => Err(StoreError::new(StoreErrorKind::Unavailable, "lost")),
            _ => Ok(replaced),
        }
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<(LeaseKey, Versioned), StoreError>> {
        self.register.list(prefix)
    }

    async fn changed(&self, key: &LeaseKey, seen: Option<&Version>) -> Result<Freed, StoreError> {
        self.sent.lock().unwrap().push("watch");
        if self.fate() == Fate::DelaysWatches {
            self.watches.notified().await;
        }
        if self.fate() == Fate::WakesAtOnce {
            // Otherwise, a store that watches again and again would stop the test.
            let watches = self.sent.lock().unwrap().iter().filter(|sent| **sent == "watch").count();
            return Ok(if watches < 100 { Freed::when(ready(())) } else { Freed::never() });
        }
        self.register.changed(key, seen).await
    }

    fn versions(&self) -> Versions {
        self.register.versions()
    }
}
