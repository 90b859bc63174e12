//! A request: reads the record, decides, and replaces it; again after a conflict.

use std::time::Duration;

use lease_core::{LeaseKey, StoreError, StoreErrorKind};
use uuid::Uuid;

use crate::decision::{Seen, Step};
use crate::record::Record;
use crate::register::{Register, Replaced, Versioned};
use crate::store::RegisterStore;

/// The end of a request.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    Answer(T),
    /// The record changed during each attempt. The last record that was read, which allows another write; `None` if the
    /// key was absent.
    Contended(Option<Box<Record>>),
}

/// The record on which a request decides.
#[derive(Debug)]
enum Basis {
    /// The last known record. It suffices for a write, since the write checks the version, but neither for an answer
    /// nor for an error.
    Known(Versioned),
    /// A record that this request has read.
    Read(Option<Versioned>),
}

impl<R: Register> RegisterStore<R> {
    /// Makes a request, and fails if the record changed during each attempt.
    pub(crate) async fn request<T: Send>(
        &self,
        key: &LeaseKey,
        decide: impl Fn(Option<Seen<'_>>) -> Result<Step<T>, StoreError> + Send + Sync,
    ) -> Result<T, StoreError> {
        match self.attempt(key, decide).await? {
            Outcome::Answer(answer) => Ok(answer),
            Outcome::Contended(_) => {
                let text = format!("{:?} changed during each of {ATTEMPTS} writes", key.as_str());
                Err(StoreError::new(StoreErrorKind::Throttled, text))
            }
        }
    }

    /// Makes a request.
    ///
    /// `decide` receives the record, and decides again after each conflict. It must not depend on earlier calls.
    pub(crate) async fn attempt<T: Send>(
        &self,
        key: &LeaseKey,
        decide: impl Fn(Option<Seen<'_>>) -> Result<Step<T>, StoreError> + Send + Sync,
    ) -> Result<Outcome<T>, StoreError> {
        let mut basis = match self.shared.known.take(key) {
            Some(known) => Basis::Known(known),
            None => Basis::Read(self.read_record(key).await?),
        };
        let mut conflicts = 0;
        loop {
            let decided = decide(self.seen(key, basis.record()));
            let writes = matches!(decided, Ok(Step::Write(..) | Step::Prepare(_)));
            if !writes && matches!(basis, Basis::Known(_)) {
                basis = Basis::Read(self.read_record(key).await?);
                continue;
            }
            let (record, answer) = match decided? {
                Step::Answer(answer) => {
                    self.keep(key, basis.into_record());
                    return Ok(Outcome::Answer(answer));
                }
                Step::Write(..) | Step::Prepare(_) if conflicts == ATTEMPTS => {
                    let found = basis.into_record();
                    return Ok(Outcome::Contended(found.map(|found| Box::new(found.record))));
                }
                Step::Write(record, answer) => (record, Some(answer)),
                Step::Prepare(record) => (record, None),
            };
            let written = match self.write(key, basis.record(), record).await? {
                Ok(written) => written,
                Err(found) => {
                    conflicts += 1;
                    self.pause_after(conflicts).await;
                    basis = Basis::Read(found);
                    continue;
                }
            };
            match answer {
                Some(answer) => {
                    // Observes the record from now on.
                    let _state = self.state(key, &written.record);
                    self.shared.known.keep(key, written);
                    return Ok(Outcome::Answer(answer));
                }
                None => basis = Basis::Read(Some(written)),
            }
        }
    }

    /// Replaces `before`. After a conflict, returns the record that was found instead.
    async fn write(
        &self,
        key: &LeaseKey,
        before: Option<&Versioned>,
        record: Record,
    ) -> Result<Result<Versioned, Option<Versioned>>, StoreError> {
        let expected = before.map(|before| &before.version);
        match self.shared.register.replace(key, expected, &record).await? {
            Replaced::Done(version) => Ok(Ok(Versioned { record, version })),
            Replaced::Conflict => {
                let found = self.read_record(key).await?;
                match found {
                    // The service's client repeated a request whose answer was lost.
                    Some(found) if found.record.mark == record.mark => Ok(Ok(found)),
                    found => Ok(Err(found)),
                }
            }
        }
    }

    pub(crate) async fn read_record(
        &self,
        key: &LeaseKey,
    ) -> Result<Option<Versioned>, StoreError> {
        self.shared.register.read(key).await
    }

    pub(crate) fn seen<'a>(
        &self,
        key: &LeaseKey,
        versioned: Option<&'a Versioned>,
    ) -> Option<Seen<'a>> {
        let Versioned { record, version } = versioned?;
        Some(Seen { record, version, state: self.state(key, record) })
    }

    /// Remembers a record for the next request.
    pub(crate) fn keep(&self, key: &LeaseKey, versioned: Option<Versioned>) {
        if let Some(versioned) = versioned {
            self.shared.known.keep(key, versioned);
        }
    }

    pub(crate) fn mark(&self) -> Uuid {
        self.shared.random.mark()
    }

    /// The first conflict needs no pause: the request that was applied instead has usually decided the answer. The
    /// last conflict needs none, since no write follows.
    async fn pause_after(&self, conflicts: u32) {
        if (2..ATTEMPTS).contains(&conflicts) {
            let longest = Duration::from_millis(5) * 2_u32.pow(conflicts);
            tokio::time::sleep(self.shared.random.part_of(longest)).await;
        }
    }
}

impl Basis {
    fn record(&self) -> Option<&Versioned> {
        match self {
            Self::Known(known) => Some(known),
            Self::Read(read) => read.as_ref(),
        }
    }

    fn into_record(self) -> Option<Versioned> {
        match self {
            Self::Known(known) => Some(known),
            Self::Read(read) => read,
        }
    }
}

/// How often a request tries to write, with pauses of half a second in total.
const ATTEMPTS: u32 = 7;
