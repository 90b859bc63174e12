//! The register with one injected bug, which uses etcd in a plausible but wrong way.

use async_trait::async_trait;
use etcd_client::{Client, Compare, CompareOp, GetOptions, Txn, TxnOp};
use futures_util::{StreamExt, stream};
use lease_core::store::{BoxStream, Freed};
use lease_core::{LeaseKey, StoreError};
use lease_etcd::EtcdRegister;
use lease_register::{Record, Register, Replaced, Version, Versioned, Versions};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    None,
    PutsWithoutCondition,
    /// Reads, compares and puts: three steps.
    ComparesApart,
    /// Takes the number of writes since the creation of the key for its version.
    VersionCountsWritesOfTheKey,
    ListsOnePage,
    WatchesFromNowOn,
}

#[derive(Debug)]
pub(crate) struct Sabotaged {
    register: EtcdRegister,
    client: Raw,
    prefix: String,
    sabotage: Sabotage,
}

/// etcd's client has no `Debug`.
struct Raw(Client);

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Raw")
    }
}

impl Sabotaged {
    pub(crate) fn new(
        register: EtcdRegister,
        client: Client,
        prefix: &str,
        sabotage: Sabotage,
    ) -> Self {
        Self { register, client: Raw(client), prefix: prefix.to_owned(), sabotage }
    }

    pub(crate) async fn delete(&self, key: &LeaseKey) {
        self.raw().delete(self.name(key), None).await.unwrap();
    }

    fn raw(&self) -> Client {
        self.client.0.clone()
    }

    fn name(&self, key: &LeaseKey) -> String {
        format!("{}{key}", self.prefix)
    }

    async fn put(&self, key: &LeaseKey, record: &Record) -> Replaced {
        let put = self.raw().put(self.name(key), record.to_json().unwrap(), None).await.unwrap();
        let revision = put.header().unwrap().revision();
        Replaced::Done(u64::try_from(revision).unwrap().into())
    }
}

#[async_trait]
impl Register for Sabotaged {
    async fn read(&self, key: &LeaseKey) -> Result<Option<Versioned>, StoreError> {
        if self.sabotage != Sabotage::VersionCountsWritesOfTheKey {
            return self.register.read(key).await;
        }
        let found = self.raw().get(self.name(key), None).await.unwrap();
        Ok(found.kvs().first().map(|found| Versioned {
            record: Record::from_json(key, found.value()).unwrap(),
            version: u64::try_from(found.version()).unwrap().into(),
        }))
    }

    async fn replace(
        &self,
        key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Replaced, StoreError> {
        match self.sabotage {
            Sabotage::PutsWithoutCondition => Ok(self.put(key, record).await),
            Sabotage::ComparesApart => {
                let found = self.read(key).await?.map(|found| found.version);
                if found.as_ref() != expected {
                    return Ok(Replaced::Conflict);
                }
                Ok(self.put(key, record).await)
            }
            Sabotage::VersionCountsWritesOfTheKey => {
                let (name, json) = (self.name(key), record.to_json()?);
                let writes = expected.map_or(0, |version| version.number().unwrap());
                let same = Compare::version(
                    name.clone(),
                    CompareOp::Equal,
                    i64::try_from(writes).unwrap(),
                );
                let txn = Txn::new().when([same]).and_then([TxnOp::put(name, json, None)]);
                let answer = self.raw().txn(txn).await.unwrap();
                let done = answer.succeeded().then(|| Replaced::Done((writes + 1).into()));
                Ok(done.unwrap_or(Replaced::Conflict))
            }
            _ => self.register.replace(key, expected, record).await,
        }
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<(LeaseKey, Versioned), StoreError>> {
        if self.sabotage != Sabotage::ListsOnePage {
            return self.register.list(prefix);
        }
        let start = format!("{}{prefix}", self.prefix);
        let page = async move {
            let options = GetOptions::new().with_prefix().with_limit(100).with_keys_only();
            let page = self.raw().get(start, Some(options)).await.unwrap();
            let names = page.kvs().iter().map(|found| found.key_str().unwrap().to_owned());
            stream::iter(names.collect::<Vec<_>>())
        };
        let names = stream::once(page).flatten();
        let found = names.then(async |name| {
            let key: LeaseKey = name.strip_prefix(&self.prefix).unwrap().parse().unwrap();
            let found = self.register.read(&key).await?.unwrap();
            Ok((key, found))
        });
        found.boxed()
    }

    async fn changed(&self, key: &LeaseKey, seen: Option<&Version>) -> Result<Freed, StoreError> {
        if self.sabotage != Sabotage::WatchesFromNowOn {
            return self.register.changed(key, seen).await;
        }
        let mut stream = self.raw().watch(self.name(key), None).await.unwrap();
        let created = stream.message().await.unwrap().unwrap();
        assert!(created.created());
        Ok(Freed::when(async move { drop(stream.message().await) }))
    }

    fn versions(&self) -> Versions {
        Versions::Growing
    }
}
