//! Sets up an `EtcdRegister`: its options, their defaults, and the checks before it connects.

use std::fmt;
use std::time::Duration;

use etcd_client::ConnectOptions;
#[cfg(feature = "tls")]
use etcd_client::{Certificate, Identity, TlsOptions};
use lease_core::StoreError;

use crate::connection::Members;
use crate::error::misconfigured;
use crate::register::EtcdRegister;

impl EtcdRegister {
    /// Connects to the member at `endpoint`, such as `http://localhost:2379`, with all defaults.
    ///
    /// # Errors
    ///
    /// If etcd is unreachable, or requires a user. The message says how to correct the fault.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(endpoint: &str) -> Result<Self, StoreError> {
        Self::builder([endpoint]).connect().await
    }

    /// Sets up a register on the cluster with the members at `endpoints`: `http://HOST:2379` or `https://HOST:2379`.
    ///
    /// All requests go to the first member. If a request has no answer, or the member refuses the user, the next request
    /// goes to the next member.
    pub fn builder<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> EtcdRegisterBuilder {
        EtcdRegisterBuilder {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: "leases/".to_owned(),
            timeout: Duration::from_secs(1),
            user: None,
            #[cfg(feature = "tls")]
            roots: None,
            #[cfg(feature = "tls")]
            identity: None,
        }
    }
}

/// Sets up an [`EtcdRegister`].
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use lease_etcd::{EtcdRegister, EtcdStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lease_core::StoreError> {
/// let register = EtcdRegister::builder(["http://etcd-0:2379", "http://etcd-1:2379"])
///     .with_prefix("billing/")
///     .with_user("billing", "a-password")
///     .with_timeout(Duration::from_secs(2)) // the cluster is far away
///     .connect()
///     .await?;
/// let store = EtcdStore::new(register);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct EtcdRegisterBuilder {
    endpoints: Vec<String>,
    prefix: String,
    timeout: Duration,
    user: Option<(String, String)>,
    #[cfg(feature = "tls")]
    roots: Option<Vec<u8>>,
    #[cfg(feature = "tls")]
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl EtcdRegisterBuilder {
    /// Sets the prefix of all keys, at least one character. Defaults to `leases/`.
    ///
    /// Registers with different prefixes have different leases. No prefix may begin with another one.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Limits each request to `timeout`, from 1 ms to an hour. Defaults to 1 s.
    ///
    /// After a request without an answer, the next one goes to the next member. Choose a time-out well below a third of
    /// the ttl.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the user and its password, for a cluster with authentication.
    pub fn with_user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Trusts the root certificates in `pem` instead of the system's certificates.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn with_root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// Identifies this client by a certificate and its key, in the PEM format, for a cluster with
    /// `--client-cert-auth`.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn with_client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Connects, and checks that the user may read and write keys with the prefix.
    ///
    /// # Errors
    ///
    /// If an option is out of range, or no member answers, or the user lacks a right. The message says how to correct
    /// the fault of the last member.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(self) -> Result<EtcdRegister, StoreError> {
        if self.endpoints.is_empty() {
            return Err(misconfigured("no endpoint: give http://HOST:2379"));
        }
        for endpoint in &self.endpoints {
            check_endpoint(endpoint)?;
        }
        let are_tls = |endpoint: &String| endpoint.starts_with("https://");
        if self.endpoints.iter().any(are_tls) && !self.endpoints.iter().all(are_tls) {
            return Err(misconfigured("some endpoints have http:// and some https://: use one"));
        }
        if self.prefix.is_empty() {
            return Err(misconfigured("the prefix is empty: leases would be among all other keys"));
        }
        if !(Duration::from_millis(1)..=MAX_TIMEOUT).contains(&self.timeout) {
            return Err(misconfigured(format!(
                "the time-out {:?} is out of range: 1 ms to {MAX_TIMEOUT:?}",
                self.timeout
            )));
        }
        let members = Members::new(self.endpoints.clone(), self.options(), self.timeout);
        let register = EtcdRegister::new(members, self.prefix);
        register.check().await?;
        Ok(register)
    }

    fn options(&self) -> ConnectOptions {
        let options = ConnectOptions::new()
            .with_connect_timeout(self.timeout)
            // A member that has lost its leader refuses requests at once.
            .with_require_leader(true)
            .with_keep_alive(PING_EVERY, PING_TIMEOUT)
            // etcd closes a connection that sends pings without a request.
            .with_keep_alive_while_idle(false);
        let options = match self.user.clone() {
            Some((name, password)) => {
                options.with_user(name, password).with_auto_token_refresh(true)
            }
            None => options,
        };
        #[cfg(feature = "tls")]
        if self.endpoints.iter().any(|endpoint| endpoint.starts_with("https://")) {
            return options.with_tls(self.tls());
        }
        options
    }

    #[cfg(feature = "tls")]
    fn tls(&self) -> TlsOptions {
        let tls = match &self.roots {
            Some(pem) => TlsOptions::new().ca_certificate(Certificate::from_pem(pem)),
            None => TlsOptions::new().with_native_roots(),
        };
        match &self.identity {
            Some((certificate, key)) => tls.identity(Identity::from_pem(certificate, key)),
            None => tls,
        }
    }
}

/// Omits the password.
impl fmt::Debug for EtcdRegisterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdRegisterBuilder")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Messages print endpoints, so none may have a password.
fn check_endpoint(endpoint: &str) -> Result<(), StoreError> {
    if endpoint.contains('@') {
        return Err(misconfigured("an endpoint has a login: give it by `with_user`"));
    }
    let is_tls = endpoint.starts_with("https://");
    if !is_tls && !endpoint.starts_with("http://") {
        return Err(misconfigured(format!("endpoint {endpoint:?}: give http://HOST:2379")));
    }
    if is_tls && cfg!(not(feature = "tls")) {
        return Err(misconfigured(format!(
            "endpoint {endpoint:?}: enable the feature `tls` of lease-etcd"
        )));
    }
    Ok(())
}

/// A ttl is at most a day, and a time-out has to be well below the ttl.
const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// etcd closes a connection whose pings come more often than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
