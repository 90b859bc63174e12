//! The register: a Lease object per key, replaced on condition of its `resourceVersion`.

use std::future::{Future, ready};
use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{AsyncBufReadExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ListParams, PostParams, Request, WatchParams};
use lease_core::store::{BoxStream, Freed};
use lease_core::{LeaseKey, StoreError, StoreErrorKind};
use lease_register::{Known, Record, Register, Replaced, Version, Versioned, Versions};
use tokio::time::timeout;

use crate::error::of_client;
use crate::name::name_of;
use crate::object::{self, LABEL};

/// Keeps each [`Record`] in a Lease object of `coordination.k8s.io/v1`, in one namespace.
///
/// [`KubernetesStore`](crate::KubernetesStore) stores leases in it. The [crate's page](crate) has an example.
#[derive(Debug)]
pub struct KubernetesRegister {
    api: Api<Lease>,
    timeout: Duration,
    /// The last object of each key: the next write keeps its uid, labels and counters.
    known: Known<Lease>,
}

impl KubernetesRegister {
    pub(crate) fn new(api: Api<Lease>, timeout: Duration) -> Self {
        // As many keys as a `RegisterStore` remembers by default.
        Self { api, timeout, known: Known::new(10_000) }
    }

    /// Checks that the API server answers, and that the account may list.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let params = ListParams::default().labels(LABEL).limit(1);
        self.request(self.api.list(&params), &[]).await.map(drop)
    }

    /// Sends one request. Returns `None` if the API server refuses it with one of these status codes.
    async fn request<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
        codes: &[u16],
    ) -> Result<Option<T>, StoreError> {
        match timeout(self.timeout, request).await {
            Ok(Ok(answer)) => Ok(Some(answer)),
            Ok(Err(kube::Error::Api(status))) if codes.contains(&status.code) => Ok(None),
            Ok(Err(error)) => Err(of_client(error)),
            // The API server may still apply the request.
            Err(_elapsed) => Err(unavailable(format!("no answer within {:?}", self.timeout))),
        }
    }

    /// Without a `resourceVersion`, the API server reads what the last write has left.
    async fn get(&self, key: &LeaseKey) -> Result<Option<Lease>, StoreError> {
        self.request(self.api.get(&name_of(key)), &[404]).await
    }

    /// The object to replace, unless it has another version: a blank one if the key is absent.
    async fn expected(
        &self,
        key: &LeaseKey,
        version: Option<&Version>,
    ) -> Result<Option<Lease>, StoreError> {
        let Some(version) = version.map(Version::as_str) else { return Ok(Some(Lease::default())) };
        let fits = |lease: &Lease| lease.metadata.resource_version.as_deref() == Some(version);
        match self.known.take(key).filter(fits) {
            Some(lease) => Ok(Some(lease)),
            None => Ok(self.get(key).await?.filter(fits)),
        }
    }
}

#[async_trait]
impl Register for KubernetesRegister {
    async fn read(&self, key: &LeaseKey) -> Result<Option<Versioned>, StoreError> {
        let Some(lease) = self.get(key).await? else { return Ok(None) };
        let (found, versioned) = object::read(&lease)?;
        if found != *key {
            let text = format!("the Lease object of {key} belongs to the key {found}");
            return Err(StoreError::new(StoreErrorKind::Corrupt, text));
        }
        self.known.keep(key, lease);
        Ok(Some(versioned))
    }

    async fn replace(
        &self,
        key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Replaced, StoreError> {
        let Some(before) = self.expected(key, expected).await? else {
            return Ok(Replaced::Conflict);
        };
        // It has the version and the uid of the last object. The API server compares both. Without the uid, a
        // replacement of a deleted Lease object would create it again, whatever version it expects.
        let lease = object::write(key, before, record)?;
        let (name, params) = (name_of(key), PostParams::default());
        let written = match expected {
            None => self.request(self.api.create(&params, &lease), &[409]).await?,
            Some(_) => self.request(self.api.replace(&name, &params, &lease), &[404, 409]).await?,
        };
        let Some(lease) = written else { return Ok(Replaced::Conflict) };
        let version = object::version_of(&lease)?;
        self.known.keep(key, lease);
        Ok(Replaced::Done(version))
    }

    /// All pages are as of the first one.
    fn list(&self, prefix: &str) -> BoxStream<'_, Result<(LeaseKey, Versioned), StoreError>> {
        let prefix = prefix.to_owned();
        let pages = stream::try_unfold(Some(None), move |next| async move {
            let Some(token) = next else { return Ok(None) };
            let mut params = ListParams::default().labels(LABEL).limit(PAGE);
            params.continue_token = token;
            let page = self.request(self.api.list(&params), &[410]).await?;
            let page = page.ok_or_else(|| unavailable("the API server has forgotten the list"))?;
            let next = page.metadata.continue_.filter(|next| !next.is_empty());
            let leases = page.items.into_iter().map(Ok);
            Ok::<_, StoreError>(Some((stream::iter(leases), next.map(Some))))
        });
        let listed = pages.try_flatten().and_then(|lease| ready(object::read(&lease)));
        listed.try_filter(move |(key, _)| ready(key.as_str().starts_with(&prefix))).boxed()
    }

    async fn changed(&self, key: &LeaseKey, seen: Option<&Version>) -> Result<Freed, StoreError> {
        let name = format!("metadata.name={}", name_of(key));
        let params = WatchParams::default().fields(&name).timeout(WATCH).disable_bookmarks();
        // Without a version, the watch begins with the object, if it exists.
        let version = seen.map_or("", Version::as_str);
        let watch = Request::new(self.api.resource_url()).watch(&params, version);
        let watch = watch.map_err(|error| of_client(kube::Error::BuildRequest(error)))?;
        let client = self.api.clone().into_client();
        // Not `Api::watch`, which reports a refusal as an event.
        let events = self.request(client.request_stream(watch), &[410]).await?;
        // The API server may have forgotten the version.
        let Some(events) = events else { return Ok(Freed::when(ready(()))) };
        Ok(Freed::when(async move {
            // An event, an error or the end of the watch: the waiter reads the key. The limit also ends a connection
            // that the API server has forgotten.
            let _ended = timeout(Duration::from_secs(WATCH.into()), pin!(events).fill_buf()).await;
        }))
    }

    /// Kubernetes promises it since version 1.35 (KEP-5504), and etcd has always kept it.
    fn versions(&self) -> Versions {
        Versions::Growing
    }
}

fn unavailable(text: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, text.into())
}

/// An object has at most 256 KiB of annotations, so a page has at most 25 MB.
const PAGE: u32 = 100;
/// In seconds. After it, a waiter reads the key, and watches it again.
const WATCH: u32 = 120;
