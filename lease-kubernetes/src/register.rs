//! The register: a Lease object per key, replaced on condition of its `resourceVersion`.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use lease_core::store::{BoxStream, Freed};
use lease_core::{LeaseKey, StoreError};
use lease_register::{Record, Register, Replaced, Version, Versioned, Versions};
use tokio::time::timeout;

use crate::error::{code, corrupt, late, of_client};
use crate::known::Known;
use crate::name::name_of;
use crate::object::{self, Object, SELECTOR};

/// Keeps each [`Record`] in a Lease object of `coordination.k8s.io/v1`, in one namespace.
///
/// [`KubernetesStore`](crate::KubernetesStore) stores leases in it. The [crate's page](crate) has an example.
pub struct KubernetesRegister {
    api: Api<Lease>,
    namespace: String,
    timeout: Duration,
    known: Known,
}

impl KubernetesRegister {
    pub(crate) fn new(api: Api<Lease>, namespace: String, timeout: Duration) -> Self {
        Self { api, namespace, timeout, known: Known::default() }
    }

    /// Checks that the API server answers, and that the account may list.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let params = ListParams::default().labels(SELECTOR).limit(1);
        self.request(self.api.list(&params)).await?.map_err(|error| of_client(&error))?;
        Ok(())
    }

    /// Sends one request. The outer error means that the API server did not answer.
    async fn request<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<kube::Result<T>, StoreError> {
        timeout(self.timeout, request).await.map_err(|_elapsed| late(self.timeout))
    }

    async fn get(&self, key: &LeaseKey) -> Result<Option<(Versioned, Object)>, StoreError> {
        let found = self.request(self.api.get_opt(&name_of(key))).await?;
        let found = found.map_err(|error| of_client(&error))?;
        found.map(|lease| object::read(key, lease)).transpose()
    }

    fn written(
        &self,
        key: &LeaseKey,
        record: &Record,
        lease: Lease,
    ) -> Result<Replaced, StoreError> {
        let version = object::version_of(&lease)?;
        self.known.keep(key, version.clone(), Object::written(lease, record));
        Ok(Replaced::Done(version))
    }

    fn listed(&self, lease: Lease) -> Result<(LeaseKey, Versioned), StoreError> {
        let key = object::key_of(&lease).unwrap_or_default();
        let key = LeaseKey::new(key).map_err(|error| corrupt(error.to_string()))?;
        let (versioned, _) = object::read(&key, lease)?;
        Ok((key, versioned))
    }
}

#[async_trait]
impl Register for KubernetesRegister {
    /// Without a `resourceVersion`, the API server reads what the last write has left.
    async fn read(&self, key: &LeaseKey) -> Result<Option<Versioned>, StoreError> {
        let Some((versioned, object)) = self.get(key).await? else { return Ok(None) };
        self.known.keep(key, versioned.version.clone(), object);
        Ok(Some(versioned))
    }

    async fn replace(
        &self,
        key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Replaced, StoreError> {
        let params =
            PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let Some(expected) = expected else {
            let lease = object::write(key, None, record)?;
            return match self.request(self.api.create(&params, &lease)).await? {
                Ok(lease) => self.written(key, record, lease),
                Err(error) if code(&error) == Some(409) => Ok(Replaced::Conflict),
                Err(error) => Err(of_client(&error)),
            };
        };
        let before = match self.known.take(key, expected) {
            Some(object) => object,
            None => match self.get(key).await? {
                Some((found, object)) if found.version == *expected => object,
                _ => return Ok(Replaced::Conflict),
            },
        };
        // The object has the version and the uid of the last one. The API server compares both. The uid is needed:
        // otherwise, a replacement of a deleted Lease object would create it again, whatever version it expects.
        let lease = object::write(key, Some(before), record)?;
        match self.request(self.api.replace(&name_of(key), &params, &lease)).await? {
            Ok(lease) => self.written(key, record, lease),
            Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(Replaced::Conflict),
            Err(error) => Err(of_client(&error)),
        }
    }

    /// All pages are as of the first one. The API server forgets them after some minutes: then the list fails.
    fn list(&self, prefix: &str) -> BoxStream<'_, Result<(LeaseKey, Versioned), StoreError>> {
        let prefix = prefix.to_owned();
        let pages = stream::try_unfold(Some(String::new()), move |next| async move {
            let Some(next) = next else { return Ok(None) };
            let mut params = ListParams::default().labels(SELECTOR).limit(PAGE);
            params.continue_token = Some(next).filter(|next| !next.is_empty());
            let page = self.request(self.api.list(&params)).await?;
            let page = page.map_err(|error| of_client(&error))?;
            let next = page.metadata.continue_.filter(|next| !next.is_empty());
            Ok::<_, StoreError>(Some((stream::iter(page.items.into_iter().map(Ok)), next)))
        });
        let listed = pages.try_flatten().map(|lease| self.listed(lease?));
        let has_prefix = move |key: &LeaseKey| key.as_str().starts_with(&prefix);
        listed.try_filter(move |(key, _)| std::future::ready(has_prefix(key))).boxed()
    }

    async fn changed(&self, key: &LeaseKey, seen: Option<&Version>) -> Result<Freed, StoreError> {
        let name = format!("metadata.name={}", name_of(key));
        let params = WatchParams::default().fields(&name).timeout(WATCH);
        // Without a version, the watch begins with the object, if it exists.
        let version = seen.map_or("", Version::as_str);
        let watch = match self.request(self.api.watch(&params, version)).await? {
            Ok(watch) => watch.boxed(),
            // The API server has forgotten the version.
            Err(error) if code(&error) == Some(410) => {
                return Ok(Freed::when(std::future::ready(())));
            }
            Err(error) => return Err(of_client(&error)),
        };
        // A connection without an answer ends, too.
        let limit = Duration::from_secs(u64::from(WATCH)) + self.timeout;
        Ok(Freed::when(async move {
            let _ended = timeout(limit, until_change(watch)).await;
        }))
    }

    /// Kubernetes promises it since version 1.35 (KEP-5504), and etcd has always kept it.
    fn versions(&self) -> Versions {
        Versions::Growing
    }
}

/// Returns after an event, or when the watch has ended: the waiter then reads the key.
async fn until_change(mut watch: BoxStream<'static, kube::Result<WatchEvent<Lease>>>) {
    while let Some(Ok(WatchEvent::Bookmark(_))) = watch.next().await {}
}

impl fmt::Debug for KubernetesRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesRegister")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// An object has at most 256 KiB of annotations, so a page has at most 25 MB.
const PAGE: u32 = 100;
/// In seconds. After it, a waiter reads the key, and watches it again.
const WATCH: u32 = 120;
/// The name of the writer in `managedFields`.
const MANAGER: &str = "lease-kubernetes";
