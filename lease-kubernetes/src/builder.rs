//! Sets up a `KubernetesRegister`: its options, their defaults, and the checks before it connects.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use kube::{Api, Client, Config};
use lease_core::StoreError;

use crate::error::{misconfigured, of_client};
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

    /// Limits each request to `timeout`, from 1 ms to an hour. Defaults to 3 s: below a third of client-go's ttl of
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
    /// If an option is out of range, or the API server does not answer, or the account lacks a right. The message says
    /// how to correct the fault.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(self) -> Result<KubernetesRegister, StoreError> {
        if !(Duration::from_millis(1)..=MAX_TIMEOUT).contains(&self.timeout) {
            return Err(misconfigured(format!(
                "the time-out {:?} is out of range: 1 ms to {MAX_TIMEOUT:?}",
                self.timeout
            )));
        }
        let mut config = match &self.server {
            Some(server) => Config::new(parsed(server)?),
            None => {
                let inferred = Config::infer().await.map_err(kube::Error::InferConfig);
                inferred.map_err(|error| of_client(&error))?
            }
        };
        config.connect_timeout = Some(self.timeout);
        let namespace = self.namespace.unwrap_or_else(|| config.default_namespace.clone());
        if !is_namespace(&namespace) {
            return Err(misconfigured(format!(
                "the namespace {namespace:?} is no name: give 1 to 63 lower-case letters, digits and hyphens"
            )));
        }
        let client = Client::try_from(config).map_err(|error| of_client(&error))?;
        let api = Api::namespaced(client, &namespace);
        let register = KubernetesRegister::new(api, namespace, self.timeout);
        register.check().await?;
        Ok(register)
    }
}

/// The type of a URL is of a crate that kube uses.
fn parsed<U: FromStr<Err: Display>>(server: &str) -> Result<U, StoreError> {
    server.parse::<U>().map_err(|error| {
        misconfigured(format!("server {server:?}: {error}: give http://HOST:PORT"))
    })
}

fn is_namespace(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 63
        && text.starts_with(is_plain)
        && text.ends_with(is_plain)
        && text.chars().all(|c| is_plain(c) || c == '-')
}

/// A ttl is at most a day, and a time-out has to be well below the ttl.
const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60);
