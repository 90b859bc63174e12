//! The register: a key of etcd per lease, replaced by a transaction on its revision.

use std::sync::Arc;

use async_trait::async_trait;
use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, Txn, TxnOp, TxnResponse, WatchOptions,
    WatchResponse, WatchStream,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use lease_core::store::{BoxStream, Freed};
use lease_core::{LeaseKey, StoreError};
use lease_register::{Record, Register, Replaced, Version, Versioned, Versions};

use crate::connection::Members;
use crate::error::{corrupt, of_watch, unavailable};

/// Keeps each [`Record`] as JSON, in a key of etcd under a prefix.
///
/// [`EtcdStore`](crate::EtcdStore) stores leases in it. The [crate's page](crate) has an example.
#[derive(Debug)]
pub struct EtcdRegister {
    members: Members,
    prefix: Arc<str>,
}

impl EtcdRegister {
    pub(crate) fn new(members: Members, prefix: String) -> Self {
        Self { members, prefix: prefix.into() }
    }

    /// Tries each member until one of them permits all requests: checks that the user may read, list and write.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let mut tried = 1;
        loop {
            match self.try_rights().await {
                Err(_) if tried < self.members.number() => tried += 1,
                answer => return answer,
            }
        }
    }

    /// etcd checks the rights for both branches of a transaction, and applies one of them. No key has the version of
    /// this comparison, so nothing is written.
    async fn try_rights(&self) -> Result<(), StoreError> {
        let (name, all) = (self.prefix.as_bytes().to_vec(), pages_from(self.prefix.as_bytes()));
        let never = Compare::version(name.clone(), CompareOp::Less, 0);
        let checking = Txn::new()
            .when([never])
            .and_then([TxnOp::put(name.clone(), "", None)])
            .or_else([TxnOp::get(name, Some(all.with_limit(1).with_keys_only()))]);
        self.txn(checking).await?;
        Ok(())
    }

    async fn txn(&self, txn: Txn) -> Result<TxnResponse, StoreError> {
        self.members.request(|mut clients| async move { clients.kv.txn(txn).await }).await
    }

    async fn get(
        &self,
        name: Vec<u8>,
        options: Option<GetOptions>,
    ) -> Result<GetResponse, StoreError> {
        self.members.request(|mut clients| async move { clients.kv.get(name, options).await }).await
    }

    fn name_of(&self, key: &LeaseKey) -> Vec<u8> {
        format!("{}{key}", self.prefix).into_bytes()
    }

    fn listed(&self, found: &KeyValue) -> Result<(LeaseKey, Versioned), StoreError> {
        let name = String::from_utf8_lossy(found.key());
        let foreign = || corrupt(format!("{name:?} in etcd is no key of a lease"));
        let key = name.strip_prefix(&*self.prefix).ok_or_else(foreign)?;
        let key = LeaseKey::new(key).map_err(|_| foreign())?;
        let versioned = versioned(&key, found)?;
        Ok((key, versioned))
    }
}

#[async_trait]
impl Register for EtcdRegister {
    async fn read(&self, key: &LeaseKey) -> Result<Option<Versioned>, StoreError> {
        let found = self.get(self.name_of(key), None).await?;
        found.kvs().first().map(|found| versioned(key, found)).transpose()
    }

    async fn replace(
        &self,
        key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Replaced, StoreError> {
        // Revision 0 means that the key is absent. Never send 0 for a version that is no revision.
        let revision = match expected {
            None => 0,
            Some(version) => match revision_of(version) {
                Some(revision) => revision,
                None => return Ok(Replaced::Conflict),
            },
        };
        let name = self.name_of(key);
        let replacing = Txn::new()
            .when([Compare::mod_revision(name.clone(), CompareOp::Equal, revision)])
            .and_then([TxnOp::put(name, record.to_json()?, None)]);
        let answer = self.txn(replacing).await?;
        if !answer.succeeded() {
            return Ok(Replaced::Conflict);
        }
        let written = answer.header().map(etcd_client::ResponseHeader::revision);
        Ok(Replaced::Done(version_of(written.unwrap_or_default())?))
    }

    /// Reads one page after another, each as it is at the time of its request. So no compaction can end a long list.
    fn list(&self, prefix: &str) -> BoxStream<'_, Result<(LeaseKey, Versioned), StoreError>> {
        let start = format!("{}{prefix}", self.prefix).into_bytes();
        let options = pages_from(&start);
        let pages = stream::try_unfold(Some(start), move |start| {
            let options = options.clone();
            async move {
                let Some(start) = start else { return Ok(None) };
                let page = self.get(start, Some(options)).await?;
                let last = page.kvs().last().filter(|_| page.more());
                let next = last.map(|last| [last.key(), b"\0"].concat());
                let found: Vec<_> = page.kvs().iter().map(|found| self.listed(found)).collect();
                Ok(Some((stream::iter(found), next)))
            }
        });
        pages.try_flatten().boxed()
    }

    async fn changed(&self, key: &LeaseKey, seen: Option<&Version>) -> Result<Freed, StoreError> {
        let name = self.name_of(key);
        // Revision 0 means from now on.
        let next = seen.and_then(revision_of).map_or(0, |seen| seen + 1);
        let options = WatchOptions::new().with_start_revision(next);
        let opening = self.members.request(|mut clients| async move {
            let mut stream = clients.watch.watch(name, Some(options)).await?;
            let first = stream.message().await?;
            Ok((stream, first))
        });
        let (mut stream, first) = opening.await?;
        match first {
            Some(first) if is_change(&first) => return refusal(&first),
            Some(_) if next == 0 && self.read(key).await?.is_some() => return Ok(wakes_at_once()),
            Some(_) => (),
            None => return Ok(wakes_at_once()),
        }
        Ok(Freed::when(async move { until_change(&mut stream).await }))
    }

    /// The revision counts all writes and deletions of the cluster.
    fn versions(&self) -> Versions {
        Versions::Growing
    }
}

/// Returns after an event, or when the watch has ended: etcd cancels it if its first revision was compacted.
async fn until_change(stream: &mut WatchStream) {
    while let Ok(Some(message)) = stream.message().await {
        if is_change(&message) {
            return;
        }
    }
}

fn is_change(message: &WatchResponse) -> bool {
    message.canceled() || !message.events().is_empty()
}

fn refusal(first: &WatchResponse) -> Result<Freed, StoreError> {
    if first.canceled() && first.compact_revision() == 0 {
        return Err(of_watch(first.cancel_reason()));
    }
    Ok(wakes_at_once())
}

fn wakes_at_once() -> Freed {
    Freed::when(std::future::ready(()))
}

fn versioned(key: &LeaseKey, found: &KeyValue) -> Result<Versioned, StoreError> {
    let record = Record::from_json(key, found.value())?;
    Ok(Versioned { record, version: version_of(found.mod_revision())? })
}

/// Without a revision, a record may have been written.
fn version_of(revision: i64) -> Result<Version, StoreError> {
    let revision = u64::try_from(revision).ok().filter(|revision| *revision > 0);
    revision.map(Version::from).ok_or_else(|| unavailable("etcd sent no revision"))
}

fn revision_of(version: &Version) -> Option<i64> {
    i64::try_from(version.number()?).ok().filter(|revision| *revision > 0)
}

/// Options of a list of all names that begin with `start`.
fn pages_from(start: &[u8]) -> GetOptions {
    GetOptions::new().with_range(end_of(start)).with_limit(PAGE)
}

/// The first name after all names that begin with `start`. `start` is text in UTF-8, whose bytes are below 0xff, and
/// is not empty.
fn end_of(start: &[u8]) -> Vec<u8> {
    let mut end = start.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

/// A hundred records of the largest size that etcd stores by default are 150 MB.
const PAGE: i64 = 100;

#[cfg(test)]
mod tests {
    use lease_core::StoreErrorKind;

    use super::*;

    #[test]
    fn write_without_a_revision_has_an_unknown_outcome() {
        let error = version_of(0).unwrap_err();

        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    }
}
