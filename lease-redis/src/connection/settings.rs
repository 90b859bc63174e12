//! The settings that a store and each node of a quorum have in common, and their setters.

use std::fmt;
use std::time::Duration;

use deadpool_redis::Timeouts;
use redis::AsyncConnectionConfig;

use crate::connection::connector::Connector;
use crate::connection::diagnose::Eviction;
use crate::connection::node::{Check, Limits, Node};
use crate::error::ServerFault;
use crate::scripts::key_space::KeySpace;

#[derive(Clone)]
pub(crate) struct ConnectionSettings {
    pub(crate) prefix: String,
    pub(crate) timeout: Duration,
    pub(crate) retention: Duration,
    pub(crate) eviction: Eviction,
    #[cfg(feature = "tls")]
    pub(crate) certificates: Option<redis::TlsCertificates>,
    #[cfg(feature = "simulation")]
    pub(crate) dialer: Option<crate::connection::dial::Dialer>,
}

impl ConnectionSettings {
    pub(crate) fn check(&self) -> Result<(), ServerFault> {
        if self.prefix.contains(['{', '}']) {
            return Err(ServerFault::misconfigured(format!(
                "the prefix {:?} contains a brace: braces select the slot of a Cluster",
                self.prefix
            )));
        }
        if !(Duration::from_millis(1)..=MAX_TIMEOUT).contains(&self.timeout) {
            return Err(ServerFault::misconfigured(format!(
                "the time-out {:?} is out of range: 1 ms to {MAX_TIMEOUT:?}",
                self.timeout
            )));
        }
        if self.retention < Duration::from_secs(60) {
            return Err(ServerFault::misconfigured(format!(
                "the retention {:?} is too short: at least a minute, and longer than every ttl",
                self.retention
            )));
        }
        Ok(())
    }

    pub(crate) fn node(&self, name: String, connector: Connector, check: Check) -> Node {
        let keys = KeySpace::new(self.prefix.as_str());
        let limits = Limits { timeout: self.timeout, retention: self.retention };
        Node::new(name.into(), connector, keys, limits, check)
    }

    pub(crate) fn connection_config(&self) -> AsyncConnectionConfig {
        let limit = Some(self.connect_limit());
        AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(limit)
    }

    pub(crate) fn pool_timeouts(&self) -> Timeouts {
        let limit = Some(self.connect_limit());
        // A pool may try several silent hosts before it connects.
        let create = Some(self.timeout.max(MIN_CREATE_LIMIT));
        Timeouts { wait: limit, create, recycle: limit }
    }

    pub(crate) fn connect_limit(&self) -> Duration {
        self.timeout.max(MIN_CONNECT_LIMIT)
    }
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self {
            prefix: "lease:".to_owned(),
            timeout: Duration::from_millis(500),
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            eviction: Eviction::Refused,
            #[cfg(feature = "tls")]
            certificates: None,
            #[cfg(feature = "simulation")]
            dialer: None,
        }
    }
}

impl fmt::Debug for ConnectionSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionSettings")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .field("retention", &self.retention)
            .field("eviction", &self.eviction)
            .finish_non_exhaustive()
    }
}

/// Defines the setters of a builder with a field `settings: ConnectionSettings`. The argument is the
/// documentation of `with_timeout`, which differs between the builders.
macro_rules! connection_setters {
    ($(#[$timeout_doc:meta])*) => {
        /// Sets the prefix of all keys: a lease is stored at `prefix{key}`. Defaults to `lease:`.
        ///
        /// Stores with different prefixes share no lease. A prefix with braces is refused, because braces
        /// select the slot of a Cluster.
        pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
            self.settings.prefix = prefix.into();
            self
        }

        $(#[$timeout_doc])*
        pub fn with_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.settings.timeout = timeout;
            self
        }

        /// Keeps a key's last token and the nonce of its last release for `retention` after its last use. The
        /// minimum is a minute, the default 7 days. A lock outside a quorum and a Cluster leaves no data,
        /// because the server keeps one token for all keys.
        ///
        /// If a key is used again after the retention, its tokens start at the server's time (µs since 1970).
        /// These tokens are larger than the last token, unless the clock was set back by at least the
        /// retention. The store refuses claims whose ttl is longer than the retention.
        pub fn with_retention(mut self, retention: ::std::time::Duration) -> Self {
            self.settings.retention = retention;
            self
        }

        /// Accepts servers whose `maxmemory-policy` may evict held leases. By default, the store refuses such
        /// a server.
        ///
        /// Use this only if the memory of the servers never runs out.
        pub fn with_eviction_accepted(mut self) -> Self {
            self.settings.eviction = $crate::connection::diagnose::Eviction::Accepted;
            self
        }

        /// Trusts the root certificate in `certificates` instead of the system's roots. Presents the client
        /// certificate in it.
        ///
        /// For `rediss://` URLs of standalone servers. Connections to Sentinels and Clusters trust the
        /// system's certificates. The variable `SSL_CERT_FILE` can add certificates.
        #[cfg(feature = "tls")]
        pub fn with_certificates(mut self, certificates: redis::TlsCertificates) -> Self {
            self.settings.certificates = Some(certificates);
            self
        }

        /// Connects over streams of `dialer` instead of sockets: for simulations.
        #[cfg(feature = "simulation")]
        pub fn with_dialer(mut self, dialer: $crate::Dialer) -> Self {
            self.settings.dialer = Some(dialer);
            self
        }
    };
}
pub(crate) use connection_setters;

/// A ttl is at most a day, and the time-out must be well below the ttl.
const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// An attempt takes several round trips, and may outlast its request.
const MIN_CONNECT_LIMIT: Duration = Duration::from_secs(1);

const MIN_CREATE_LIMIT: Duration = Duration::from_secs(10);
