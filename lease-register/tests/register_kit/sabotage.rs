//! A register with one injected bug.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream;
use lease_core::store::{BootClock, BoxStream, Freed, ServerClock};
use lease_core::{LeaseKey, StoreError};
use lease_register::{Record, Register, Replaced, Version, Versioned, Versions};
use tokio::sync::watch;
use tokio::task::yield_now;
use uuid::Uuid;

/// The injected bug. Each bug is a plausible mistake of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    None,
    ReadsBlankForAbsent,
    DropsTheExpiry,
    CutsLargeRecords,
    IgnoresCase,
    CreatesOverRecords,
    ReplacesAbsentKeys,
    AcceptsOldVersions,
    /// Applies a request again if it has applied it before, and says so.
    AppliesTwice,
    NumbersRestartWithRecords,
    VersionIsHashWithoutMark,
    AnswersAnotherVersion,
    VersionsShrink,
    ChecksApart,
    ReadsFromACache,
    ListsFromACache,
    ListsOnePage,
    ListsOtherPrefixes,
    WatchNeverWakes,
    WatchMissesCreations,
    WatchMissesDeletions,
    WatchForgetsWhatWasSeen,
    DatesNoAnswers,
}

#[derive(Debug)]
pub(crate) struct Sabotaged {
    sabotage: Sabotage,
    data: Arc<Mutex<Data>>,
    changes: watch::Sender<()>,
    /// What this handle has read.
    read: Mutex<HashMap<LeaseKey, Option<Versioned>>>,
    listed: Mutex<HashMap<String, Vec<(LeaseKey, Versioned)>>>,
    clock: ServerClock,
}

#[derive(Debug, Default)]
struct Data {
    last: u64,
    by_key: BTreeMap<LeaseKey, Versioned>,
    applied: Vec<(LeaseKey, Uuid)>,
}

impl Sabotaged {
    pub(crate) fn new(sabotage: Sabotage) -> Self {
        Self::on(sabotage, Arc::default(), watch::Sender::new(()))
    }

    pub(crate) fn another(&self) -> Self {
        Self::on(self.sabotage, Arc::clone(&self.data), self.changes.clone())
    }

    fn on(sabotage: Sabotage, data: Arc<Mutex<Data>>, changes: watch::Sender<()>) -> Self {
        let clock = ServerClock::new(Arc::new(BootClock::new()), 0.01);
        let (read, listed) = (Mutex::default(), Mutex::default());
        Self { sabotage, data, changes, read, listed, clock }
    }

    fn is(&self, sabotage: Sabotage) -> bool {
        self.sabotage == sabotage
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap()
    }

    pub(crate) fn delete(&self, key: &LeaseKey) {
        let mut data = self.data();
        data.last += 1;
        data.by_key.remove(key);
        drop(data);
        self.changes.send_replace(());
    }

    fn stored_key(&self, key: &LeaseKey) -> LeaseKey {
        if self.is(Sabotage::IgnoresCase) {
            return LeaseKey::new(key.as_str().to_lowercase()).unwrap();
        }
        key.clone()
    }

    /// The record as the register stores it.
    fn stored(&self, record: &Record) -> Record {
        let mut record = record.clone();
        if self.is(Sabotage::DropsTheExpiry)
            && let Some(held) = &mut record.holder
        {
            held.expires_at = None;
        }
        if self.is(Sabotage::CutsLargeRecords) && record.to_json().unwrap().len() > 30_000 {
            record.attributes.clear();
        }
        record
    }

    fn next_version(&self, data: &mut Data, key: &LeaseKey, record: &Record) -> Version {
        data.last += 1;
        match self.sabotage {
            Sabotage::NumbersRestartWithRecords => {
                let found = data.by_key.get(key).and_then(|found| found.version.number());
                (found.unwrap_or(0) + 1).into()
            }
            Sabotage::VersionIsHashWithoutMark => {
                let mut hasher = DefaultHasher::new();
                let content = Record { mark: Uuid::nil(), ..record.clone() };
                content.to_json().unwrap().hash(&mut hasher);
                Version::new(format!("{:x}", hasher.finish()))
            }
            Sabotage::VersionsShrink => (1_000_000 - data.last).into(),
            _ => data.last.into(),
        }
    }

    fn allows(&self, found: Option<&Versioned>, expected: Option<&Version>) -> bool {
        let found = found.map(|found| &found.version);
        found == expected
            || self.is(Sabotage::AnswersAnotherVersion)
                && found.and_then(Version::number) == expected.and_then(Version::number)
            || self.is(Sabotage::CreatesOverRecords) && expected.is_none()
            || self.is(Sabotage::ReplacesAbsentKeys) && found.is_none()
            || self.is(Sabotage::AcceptsOldVersions)
                && found
                    .zip(expected)
                    .is_some_and(|(found, expected)| expected.number() < found.number())
    }

    fn date(&self) {
        if !self.is(Sabotage::DatesNoAnswers) {
            let now = self.clock.clock().now();
            self.clock.add_answer(now, now, 1_800_000_000 + now.as_nanos() / 1_000_000_000);
        }
    }
}

#[async_trait]
impl Register for Sabotaged {
    async fn read(&self, key: &LeaseKey) -> Result<Option<Versioned>, StoreError> {
        yield_now().await;
        self.date();
        let key = self.stored_key(key);
        let found = self.data().by_key.get(&key).cloned();
        if self.is(Sabotage::ReadsFromACache) {
            let mut read = self.read.lock().unwrap();
            return Ok(read.entry(key).or_insert(found).clone());
        }
        if self.is(Sabotage::ReadsBlankForAbsent) && found.is_none() {
            let record = Record::blank(Uuid::nil());
            return Ok(Some(Versioned { record, version: 0.into() }));
        }
        Ok(found)
    }

    async fn replace(
        &self,
        key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Replaced, StoreError> {
        yield_now().await;
        self.date();
        let key = self.stored_key(key);
        let is_repeated = self.data().applied.contains(&(key.clone(), record.mark));
        if self.is(Sabotage::AppliesTwice) && is_repeated {
            return Ok(Replaced::Done(self.data().last.into()));
        }
        let is_allowed = self.allows(self.data().by_key.get(&key), expected);
        if self.is(Sabotage::ChecksApart) {
            yield_now().await;
        }
        if !is_allowed {
            return Ok(Replaced::Conflict);
        }
        let mut data = self.data();
        let record = self.stored(record);
        let version = self.next_version(&mut data, &key, &record);
        data.applied.push((key.clone(), record.mark));
        data.by_key.insert(key, Versioned { record, version: version.clone() });
        drop(data);
        self.changes.send_replace(());
        if self.is(Sabotage::AnswersAnotherVersion) {
            return Ok(Replaced::Done(Version::new(format!("0{}", version.as_str()))));
        }
        Ok(Replaced::Done(version))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<(LeaseKey, Versioned), StoreError>> {
        let data = self.data();
        let is_listed = |key: &LeaseKey| {
            if self.is(Sabotage::ListsOtherPrefixes) {
                return key.as_str().starts_with(prefix.trim_end_matches('/'));
            }
            key.as_str().starts_with(prefix)
        };
        let found = data.by_key.iter().filter(|(key, _)| is_listed(key));
        let found = found.map(|(key, found)| (key.clone(), found.clone()));
        let limit = if self.is(Sabotage::ListsOnePage) { 100 } else { usize::MAX };
        let listed: Vec<_> = found.take(limit).collect();
        if self.is(Sabotage::ListsFromACache) {
            let mut cache = self.listed.lock().unwrap();
            let first = cache.entry(prefix.to_owned()).or_insert(listed);
            return stream::iter(first.clone()).map(Ok).boxed();
        }
        stream::iter(listed).map(Ok).boxed()
    }

    async fn changed(&self, key: &LeaseKey, seen: Option<&Version>) -> Result<Freed, StoreError> {
        let misses_it = self.is(Sabotage::WatchMissesCreations) && seen.is_none();
        if self.is(Sabotage::WatchNeverWakes) || misses_it {
            return Ok(Freed::when(std::future::pending()));
        }
        let mut changes = self.changes.subscribe();
        let (data, key, mut seen) = (Arc::clone(&self.data), key.clone(), seen.cloned());
        let version =
            move || data.lock().unwrap().by_key.get(&key).map(|found| found.version.clone());
        if self.is(Sabotage::WatchForgetsWhatWasSeen) {
            seen = version();
        }
        let keeps_open = self.changes.clone();
        let ignores_absence = self.is(Sabotage::WatchMissesDeletions);
        let is_as_seen = move || match version() {
            None if ignores_absence => true,
            version => version == seen,
        };
        Ok(Freed::when(async move {
            while is_as_seen() {
                changes.changed().await.unwrap();
            }
            drop(keeps_open);
        }))
    }

    fn versions(&self) -> Versions {
        match self.sabotage {
            Sabotage::VersionIsHashWithoutMark => Versions::Opaque,
            _ => Versions::Growing,
        }
    }

    fn clock(&self) -> Option<&ServerClock> {
        Some(&self.clock)
    }
}
