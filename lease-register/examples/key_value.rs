//! A store in a hundred lines: leases in a key-value service that compares and swaps.
#![expect(clippy::print_stdout, reason = "an example prints its result")]

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::{LeaseKey, Locker, StoreError, StoreErrorKind};
use lease_register::{Record, Register, RegisterStore, Replaced, Version, Versioned, Versions};

use service::{Client, Put};

/// Keeps each record as JSON, in the key-value service, under a prefix.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyValueRegister {
    client: Client,
}

#[async_trait]
impl Register for KeyValueRegister {
    async fn read(&self, key: &LeaseKey) -> Result<Option<Versioned>, StoreError> {
        let found = self.client.get(&name_of(key)).await.map_err(unavailable)?;
        found.map(|(value, revision)| versioned(key, &value, revision)).transpose()
    }

    async fn replace(
        &self,
        key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Replaced, StoreError> {
        // Revision 0 means to this service that the key is absent. Never send 0 for a version that is no number.
        let expected = match expected {
            None => 0,
            Some(version) => match version.number() {
                Some(revision) if revision > 0 => revision,
                _ => return Ok(Replaced::Conflict),
            },
        };
        let put = self.client.put(&name_of(key), record.to_json()?, expected).await;
        Ok(match put.map_err(unavailable)? {
            Put::Done(revision) => Replaced::Done(revision.into()),
            Put::OtherRevision => Replaced::Conflict,
        })
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<(LeaseKey, Versioned), StoreError>> {
        let names = format!("{PREFIX}{prefix}");
        let listed = async move {
            match self.client.list(&names).await {
                Ok(found) => found.into_iter().map(listed).collect(),
                // An error is an item: a failed list never looks empty.
                Err(error) => vec![Err(unavailable(error))],
            }
        };
        stream::once(listed).flat_map(stream::iter).boxed()
    }

    /// The service numbers all writes and deletions of all keys.
    fn versions(&self) -> Versions {
        Versions::Growing
    }
}

fn name_of(key: &LeaseKey) -> String {
    format!("{PREFIX}{key}")
}

fn versioned(key: &LeaseKey, value: &[u8], revision: u64) -> Result<Versioned, StoreError> {
    Ok(Versioned { record: Record::from_json(key, value)?, version: revision.into() })
}

fn listed(
    (name, value, revision): (String, Vec<u8>, u64),
) -> Result<(LeaseKey, Versioned), StoreError> {
    let key = LeaseKey::new(name.strip_prefix(PREFIX).unwrap_or(&name))
        .map_err(|error| StoreError::new(StoreErrorKind::Corrupt, error))?;
    let versioned = versioned(&key, &value, revision)?;
    Ok((key, versioned))
}

/// The outcome is unknown. A real client distinguishes more: refused credentials are
/// [`Denied`](StoreErrorKind::Denied), and a limit of the rate is [`Throttled`](StoreErrorKind::Throttled).
fn unavailable(error: std::io::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, error)
}

const PREFIX: &str = "leases/";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locker = Locker::new(RegisterStore::new(KeyValueRegister::default()));

    let lease = locker.wait_until_obtained(&"payroll/2026-11".parse()?).await?;
    println!("obtained with token {}", lease.token());
    lease.release().await?;
    Ok(())
}

/// A stand-in for the client of your service.
#[expect(clippy::unused_async, reason = "a real client waits for its service")]
mod service {
    use std::collections::BTreeMap;
    use std::io::Error;
    use std::sync::{Arc, Mutex, MutexGuard};

    #[derive(Debug, Clone, Default)]
    pub(crate) struct Client(Arc<Mutex<Data>>);

    #[derive(Debug, Default)]
    struct Data {
        revision: u64,
        values: BTreeMap<String, (Vec<u8>, u64)>,
    }

    pub(crate) enum Put {
        Done(u64),
        OtherRevision,
    }

    impl Client {
        pub(crate) async fn get(&self, name: &str) -> Result<Option<(Vec<u8>, u64)>, Error> {
            Ok(self.data()?.values.get(name).cloned())
        }

        pub(crate) async fn put(
            &self,
            name: &str,
            value: Vec<u8>,
            if_at: u64,
        ) -> Result<Put, Error> {
            let mut data = self.data()?;
            if data.values.get(name).map_or(0, |(_, revision)| *revision) != if_at {
                return Ok(Put::OtherRevision);
            }
            data.revision += 1;
            let revision = data.revision;
            data.values.insert(name.to_owned(), (value, revision));
            Ok(Put::Done(revision))
        }

        pub(crate) async fn list(
            &self,
            prefix: &str,
        ) -> Result<Vec<(String, Vec<u8>, u64)>, Error> {
            let data = self.data()?;
            let found = data.values.iter().filter(|(name, _)| name.starts_with(prefix));
            let copy = |(name, (value, at)): (&String, &(Vec<u8>, u64))| {
                (name.clone(), value.clone(), *at)
            };
            Ok(found.map(copy).collect())
        }

        #[cfg(test)]
        fn delete(&self, name: &str) {
            if let Ok(mut data) = self.data() {
                data.revision += 1;
                data.values.remove(name);
            }
        }

        fn data(&self) -> Result<MutexGuard<'_, Data>, Error> {
            self.0.lock().map_err(|_| Error::other("the service has crashed"))
        }
    }

    #[cfg(test)]
    impl super::KeyValueRegister {
        /// Deletes the record of `key`, as an operator would.
        pub(crate) fn delete(&self, key: &lease_core::LeaseKey) {
            self.client.delete(&super::name_of(key));
        }
    }
}
