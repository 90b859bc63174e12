//! Sets up a `KubernetesRegister`: its options, their defaults, and the checks before it connects.

use std::time::Duration;

use kube::{Api, Client, Config, Error};
use lease_core::{StoreError, StoreErrorKind};

use crate::error::of_client;
use crate::name::is_label;
use crate::register::KubernetesRegister;

impl KubernetesRegister {
    /// Connects to the cluster of this pod or of the kubeconfig file, with all defaults. The leases are in `namespace`.
    ///
    /// # Errors
    ///
    /// If the API server is unreachable, or refuses the credentials. The message says how to correct the fault.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(namespace: &str) -> Result<Self, StoreError> {
        Self::builder().with_namespace(namespace).connect().await
    }

    /// Sets up a register on the cluster of this pod or of the kubeconfig file.
    pub fn builder() -> KubernetesRegisterBuilder {
        KubernetesRegisterBuilder { namespace: None, server: None, timeout: Duration::from_secs(3) }
    }
}

/// Sets up a [`KubernetesRegister`].
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use lease_kubernetes::{KubernetesRegister, KubernetesStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lease_core::StoreError> {
/// let register = KubernetesRegister::builder()
///     .with_namespace("billing")
///     .with_timeout(Duration::from_secs(2)) // for a ttl below 10 s
///     .connect()
///     .await?;
/// let store = KubernetesStore::new(register);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct KubernetesRegisterBuilder {
    namespace: Option<String>,
    server: Option<String>,
    timeout: Duration,
}

impl KubernetesRegisterBuilder {
    /// Sets the namespace of the Lease objects. Defaults to the namespace of the pod or of the kubeconfig file.
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sends all requests to `url`, without credentials: for `kubectl proxy`, whose default is `http://127.0.0.1:8001`.
    pub fn with_server(mut self, url: impl Into<String>) -> Self {
        self.server = Some(url.into());
        self
    }

    /// Limits each request to `timeout`. Defaults to 3 s: below a third of client-go's ttl of
    /// 15 s, and longer than an API server with much load needs.
    ///
    /// Choose a time-out well below a third of the ttl.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Connects, and checks that the account may list Lease objects.
    ///
    /// # Errors
    ///
    /// If an option is wrong, or the API server does not answer, or the account lacks a right. The message says
    /// how to correct the fault.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(self) -> Result<KubernetesRegister, StoreError> {
        let wrong = |text: String| StoreError::new(StoreErrorKind::Misconfigured, text);
        let mut config = match &self.server {
            Some(server) => server.parse().map(Config::new).map_err(|error| {
                wrong(format!("server {server:?}: {error}: give http://HOST:PORT"))
            })?,
            None => Config::infer().await.map_err(Error::InferConfig).map_err(of_client)?,
        };
        config.connect_timeout = Some(self.timeout);
        // The locker repeats requests, by its own pauses.
        config.default_retry = false;
        let namespace = self.namespace.unwrap_or_else(|| config.default_namespace.clone());
        if namespace.len() > 63 || !is_label(&namespace) {
            return Err(wrong(format!(
                "the namespace {namespace:?} is no name: give 1 to 63 lower-case letters, digits and hyphens"
            )));
        }
        let client = Client::try_from(config).map_err(of_client)?;
        let register = KubernetesRegister::new(Api::namespaced(client, &namespace), self.timeout);
        register.check().await?;
        Ok(register)
    }
}
