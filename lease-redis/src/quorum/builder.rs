//! Sets up a `RedisQuorum`: its options, their defaults, and the checks before it connects.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lease_core::store::{BootClock, Clock};
use lease_core::{LeaseOptions, StoreError, StoreErrorKind};
use tokio::sync::Semaphore;

use crate::connection::node::{Check, Node};
use crate::connection::settings::{ConnectionSettings, connection_setters};
use crate::error::ServerFault;
use crate::quorum::RedisQuorum;
use crate::quorum::nodes::dispatcher::Dispatcher;
use crate::quorum::nodes::shared_choice::SharedChoice;
use crate::quorum::nodes::{Nodes, Probes};
use crate::quorum::rejoin::admission::{NodeAdmission, Runs};
use crate::quorum::rejoin::membership::{Membership, QuorumSettings};
use crate::quorum::voting::ballot::too_few;
use crate::quorum::voting::contention::Contention;
use crate::quorum::voting::proposals::Proposals;
use crate::quorum::voting::unanswered::UnansweredClaims;
use crate::scripts::key_space::KeySpace;

impl RedisQuorum {
    /// Connects to the independent servers at `urls`: all nodes of the quorum, in any order.
    ///
    /// Three servers tolerate the loss of one server, and five tolerate the loss of two. Four servers also
    /// tolerate the loss of one, and are needed while the [list of nodes changes](crate#a-quorum).
    ///
    /// # Errors
    ///
    /// If a majority is unreachable, if a server is given twice, or if a server's settings would lose leases.
    /// The message says how to correct the fault.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connections.
    pub async fn connect<U: Into<String>>(
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Self, StoreError> {
        Self::builder(urls).connect().await
    }

    /// Sets up a quorum of the independent servers at `urls`.
    pub fn builder<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> RedisQuorumBuilder {
        RedisQuorumBuilder::new(urls.into_iter().map(Into::into))
    }
}

/// Sets up a [`RedisQuorum`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use lease_redis::RedisQuorum;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lease_core::StoreError> {
/// # if !lease_test_servers::redis::available() { return Ok(()); }
/// # let servers = lease_test_servers::redis::independent(3);
/// let urls = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
/// # let urls = servers.iter().map(|server| server.url());
/// let quorum = RedisQuorum::builder(urls)
///     .with_max_ttl(Duration::from_secs(30))
/// #   .with_timeout(lease_test_servers::redis::PATIENT)
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct RedisQuorumBuilder {
    nodes: Vec<NodeAddress>,
    settings: ConnectionSettings,
    max_ttl: Duration,
    rejoin_delay: RejoinDelay,
    clock_rate_error: f64,
    clock: Arc<dyn Clock>,
    pool_count: Option<usize>,
}

#[derive(Clone)]
struct NodeAddress {
    url: String,
    pool: Option<deadpool_redis::Pool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RejoinDelay {
    On,
    Off,
}

impl RedisQuorumBuilder {
    fn new(urls: impl IntoIterator<Item = String>) -> Self {
        Self {
            nodes: urls.into_iter().map(|url| NodeAddress { url, pool: None }).collect(),
            settings: ConnectionSettings::default(),
            max_ttl: Duration::from_secs(60),
            rejoin_delay: RejoinDelay::On,
            clock_rate_error: 0.01,
            clock: Arc::new(BootClock::new()),
            pool_count: None,
        }
    }

    connection_setters! {
        /// Limits each request to a node to `timeout`, from 1 ms to an hour. Defaults to 500 ms.
        ///
        /// Calls do not wait for a minority of the nodes. If a majority is unavailable, calls fail after the
        /// time-out. Choose a time-out well below a third of the ttl. Votes are valid for one time-out. A
        /// restarted node accepts restored leases after one time-out.
        ///
        /// All clients of the same nodes need the same time-out. Nodes refuse clients with another time-out.
    }

    /// Refuses claims whose ttl is longer than `max_ttl`. A restarted node votes again only after `max_ttl`,
    /// the rejoin delay. The maximum is a day. The default is 60 s, twice the default ttl.
    ///
    /// All clients of the same nodes need the same value. A client with a different value is refused.
    pub fn with_max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = max_ttl;
        self
    }

    /// Lets nodes vote as soon as they have started, without the rejoin delay.
    ///
    /// Use this for tests and for the first start of a new set of nodes. A restarted node may have forgotten
    /// a held lease. A majority of such nodes and of nodes that never had the lease can grant the key again.
    pub fn without_rejoin_delay(mut self) -> Self {
        self.rejoin_delay = RejoinDelay::Off;
        self
    }

    /// Sets the maximum difference between the rates of this machine's clock and the nodes' clocks, from 0 to
    /// below 0.5. Defaults to 0.01 (1 %). Set the same value in [`LeaseOptions`](lease_core::LeaseOptions),
    /// which has the same default.
    pub fn with_clock_rate_error(mut self, clock_rate_error: f64) -> Self {
        self.clock_rate_error = clock_rate_error;
        self
    }

    /// Reads the time from `clock`: for simulations.
    #[cfg(feature = "simulation")]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Takes connections from pools of the application, one pool for each node, in the order of the URLs.
    /// Watches use separate connections.
    pub fn with_pools(mut self, pools: impl IntoIterator<Item = deadpool_redis::Pool>) -> Self {
        let pools: Vec<_> = pools.into_iter().collect();
        self.pool_count = (pools.len() != self.nodes.len()).then_some(pools.len());
        for (node, pool) in self.nodes.iter_mut().zip(pools) {
            node.pool = Some(pool);
        }
        self
    }

    /// Connects and checks the settings of each node. The quorum connects to an unreachable minority later.
    ///
    /// # Errors
    ///
    /// If an option is out of range, a majority is unreachable, a node is given twice, or a node's settings
    /// would lose leases. The message says how to correct the fault.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connections.
    pub async fn connect(self) -> Result<RedisQuorum, StoreError> {
        self.check()?;
        let runs = Runs::default();
        let mut nodes = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let (name, connector) = self.settings.standalone(&node.url, node.pool.clone())?;
            let membership = (self.rejoin_delay == RejoinDelay::On).then(|| self.membership());
            let admission =
                NodeAdmission { node: (index, name.clone()), runs: Arc::clone(&runs), membership };
            let check =
                Check { eviction: self.settings.eviction, admission: Some(Box::new(admission)) };
            nodes.push(Arc::new(self.settings.node(name, connector, check)));
        }
        connect_all(&nodes).await?;
        let (max_ttl, vote_validity) = (self.max_ttl, self.settings.timeout);
        let nodes = Nodes {
            dispatcher: Arc::new(Dispatcher::new(&nodes)),
            probes: Probes::new(nodes.len()),
            all: nodes,
            keys: KeySpace::new(self.settings.prefix.as_str()),
            max_ttl: (self.rejoin_delay == RejoinDelay::On).then_some(max_ttl),
            vote_validity,
            restore_delay: self.with_clock_error(vote_validity),
            proposals: Proposals::default(),
            watched: Arc::default(),
            clock_rate_error: self.clock_rate_error,
            clock: self.clock,
            contention: Contention::default(),
            unanswered: UnansweredClaims::default(),
            asked: Arc::default(),
            shared_choice: SharedChoice::default(),
            background: Arc::new(Semaphore::new(MAX_IN_BACKGROUND)),
        };
        Ok(RedisQuorum { nodes: Arc::new(nodes) })
    }

    fn membership(&self) -> Membership {
        let settings = QuorumSettings { max_ttl: self.max_ttl, timeout: self.settings.timeout };
        let record = KeySpace::new(self.settings.prefix.as_str()).quorum();
        let rejoin_delay = self.with_clock_error(self.max_ttl);
        Membership::new(settings, rejoin_delay, record, Arc::clone(&self.clock))
    }

    fn with_clock_error(&self, length: Duration) -> Duration {
        match self.rejoin_delay {
            RejoinDelay::On => length.mul_f64(1.0 + self.clock_rate_error),
            RejoinDelay::Off => Duration::ZERO,
        }
    }

    fn check(&self) -> Result<(), ServerFault> {
        self.settings.check()?;
        if self.nodes.is_empty() {
            return Err(ServerFault::misconfigured(
                "a quorum needs nodes: give the URLs of three or five",
            ));
        }
        if self.max_ttl > LeaseOptions::MAX_TTL.min(self.settings.retention) {
            return Err(ServerFault::misconfigured(format!(
                "the max_ttl {:?} is too long: at most {:?}, and no longer than the retention",
                self.max_ttl,
                LeaseOptions::MAX_TTL
            )));
        }
        if let Some(count) = self.pool_count {
            return Err(ServerFault::misconfigured(format!(
                "{count} pools for {} nodes: give one pool for each node, in the order of the URLs",
                self.nodes.len()
            )));
        }
        if !(0.0..0.5).contains(&self.clock_rate_error) {
            return Err(ServerFault::misconfigured(format!(
                "the clock rate error {} is out of range: at least 0 and less than 0.5",
                self.clock_rate_error
            )));
        }
        Ok(())
    }
}

impl std::fmt::Debug for NodeAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeAddress")
    }
}

/// Connects to all nodes. Only this function waits for a hung node.
async fn connect_all(nodes: &[Arc<Node>]) -> Result<(), ServerFault> {
    let mut connecting: FuturesUnordered<_> = nodes.iter().map(|node| node.connect()).collect();
    let mut missing = Vec::new();
    while let Some(result) = connecting.next().await {
        match result {
            Ok(()) => (),
            Err(fault) if fault.kind == StoreErrorKind::Unavailable => missing.push(fault),
            Err(fault) => return Err(fault),
        }
    }
    let connected = nodes.len() - missing.len();
    if connected > nodes.len() / 2 {
        return Ok(());
    }
    Err(too_few(connected, nodes.len(), &missing))
}

/// The number of requests that may wait in the background for slow nodes. Further requests are sent, but
/// their answers are not awaited.
const MAX_IN_BACKGROUND: usize = 10_000;
