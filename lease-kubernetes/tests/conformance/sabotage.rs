//! The register with one injected bug, which uses Kubernetes in a plausible but wrong way.

use async_trait::async_trait;
use futures_util::StreamExt;
use lease_core::store::{BoxStream, Freed};
use lease_core::{LeaseKey, StoreError};
use lease_kubernetes::KubernetesRegister;
use lease_register::{Record, Register, Replaced, Version, Versioned, Versions};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    None,
    /// Reads the object before each write, and sends the version that it has found.
    ReplacesWhateverIsThere,
    /// The fixture lets the server ignore uids, so the register needs no change.
    SendsNoUid,
    ListsOnePage,
    WatchesFromNowOn,
}

#[derive(Debug)]
pub(crate) struct Sabotaged {
    register: KubernetesRegister,
    sabotage: Sabotage,
}

impl Sabotaged {
    pub(crate) fn new(register: KubernetesRegister, sabotage: Sabotage) -> Self {
        Self { register, sabotage }
    }
}

#[async_trait]
impl Register for Sabotaged {
    async fn read(&self, key: &LeaseKey) -> Result<Option<Versioned>, StoreError> {
        self.register.read(key).await
    }

    async fn replace(
        &self,
        key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Replaced, StoreError> {
        if self.sabotage != Sabotage::ReplacesWhateverIsThere {
            return self.register.replace(key, expected, record).await;
        }
        loop {
            let found = self.register.read(key).await?.map(|found| found.version);
            let replaced = self.register.replace(key, found.as_ref(), record).await?;
            if let Replaced::Done(_) = &replaced {
                return Ok(replaced);
            }
        }
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<(LeaseKey, Versioned), StoreError>> {
        let all = self.register.list(prefix);
        if self.sabotage == Sabotage::ListsOnePage { all.take(100).boxed() } else { all }
    }

    async fn changed(&self, key: &LeaseKey, seen: Option<&Version>) -> Result<Freed, StoreError> {
        if self.sabotage != Sabotage::WatchesFromNowOn {
            return self.register.changed(key, seen).await;
        }
        let now = self.register.read(key).await?.map(|found| found.version);
        self.register.changed(key, now.as_ref()).await
    }

    fn versions(&self) -> Versions {
        self.register.versions()
    }
}
