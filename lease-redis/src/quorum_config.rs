//! How a quorum is set up.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lease_core::{BootClock, Clock, LeaseOptions, StoreError, StoreErrorKind};
use tokio::sync::Semaphore;

use crate::contention::Contention;
use crate::diagnose::Eviction;
use crate::error::Fault;
use crate::node::{Admit, Check, Node};
use crate::nodes::Nodes;
use crate::quorum::RedisQuorum;
use crate::reach::Common;

/// Sets up a [`RedisQuorum`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct RedisQuorumBuilder {
    nodes: Vec<Reach>,
    common: Common,
    max_ttl: Duration,
    quarantine: Quarantine,
    clock_rate_error: f64,
    clock: Arc<dyn Clock>,
    /// How many pools were given, where that is not one for each node.
    other_count: Option<usize>,
}

#[derive(Clone)]
struct Reach {
    url: String,
    pool: Option<deadpool_redis::Pool>,
}

/// Whether a server that has just started may vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quarantine {
    On,
    Off,
}

impl RedisQuorumBuilder {
    pub(crate) fn new(urls: impl IntoIterator<Item = String>) -> Self {
        Self {
            nodes: urls.into_iter().map(|url| Reach { url, pool: None }).collect(),
            common: Common::default(),
            max_ttl: Duration::from_secs(60),
            quarantine: Quarantine::On,
            clock_rate_error: 0.01,
            clock: Arc::new(BootClock::new()),
            other_count: None,
        }
    }

    /// Names every key `prefix{key}…`. By default `lease:`.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.common.prefix = prefix.into();
        self
    }

    /// Gives each call of a node up after `timeout`. By default 500 ms.
    ///
    /// No answer waits for a minority of nodes: this is how long it takes to find out that a
    /// majority is gone. Keep it well below a third of the ttl. Votes count for as long, and a node
    /// that has restarted helps leases that were held before once it has been up for as long.
    ///
    /// All who use the same nodes must agree on it.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.common.timeout = timeout;
        self
    }

    /// Remembers a key's last token, and the nonce of its last release, for `retention` after
    /// its last use. By default 7 days.
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.common.retention = retention;
        self
    }

    /// Refuses claims whose ttl is longer than `max_ttl`, and keeps a node that restarted from
    /// voting for as long. By default 60 s: twice the usual ttl, and a restart is forgiven after
    /// a minute.
    ///
    /// All who use the same nodes must agree on it.
    pub fn with_max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = max_ttl;
        self
    }

    /// Lets nodes vote as soon as they are up.
    ///
    /// For tests, and for the first start of a new set of nodes. A node that restarted may have
    /// forgotten a lease that others still count on: if as many do as are needed to make up a
    /// majority with those that never knew, two lessees hold one key.
    pub fn without_quarantine(mut self) -> Self {
        self.quarantine = Quarantine::Off;
        self
    }

    /// How far the rates of this machine's clock and the nodes' may differ. By default 0.01, 1 %,
    /// as [`LeaseOptions`](lease_core::LeaseOptions) has it: give both the same.
    pub fn with_clock_rate_error(mut self, clock_rate_error: f64) -> Self {
        self.clock_rate_error = clock_rate_error;
        self
    }

    /// Reads lease time from `clock`: for tests.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Accepts servers whose `maxmemory-policy` may drop leases that are held.
    pub fn with_eviction_accepted(mut self) -> Self {
        self.common.eviction = Eviction::Accepted;
        self
    }

    /// Takes the connections of the nodes from `pools`, in the order of their URLs; watches have
    /// connections of their own.
    pub fn with_pools(mut self, pools: impl IntoIterator<Item = deadpool_redis::Pool>) -> Self {
        let pools: Vec<_> = pools.into_iter().collect();
        self.other_count = (pools.len() != self.nodes.len()).then_some(pools.len());
        for (node, pool) in self.nodes.iter_mut().zip(pools) {
            node.pool = Some(pool);
        }
        self
    }

    /// Trusts what `certificates` name, instead of what the system trusts, and shows the
    /// client's own. For `rediss://`.
    #[cfg(feature = "tls")]
    pub fn with_certificates(mut self, certificates: redis::TlsCertificates) -> Self {
        self.common.certificates = Some(certificates);
        self
    }

    /// Connects over the streams that `dialer` makes, rather than over sockets: for simulations.
    #[cfg(feature = "simulation")]
    pub fn with_dialer(mut self, dialer: crate::Dialer) -> Self {
        self.common.dialer = Some(dialer);
        self
    }

    /// Connects, and looks at how each node is set up. A minority that is not there does no
    /// harm: it is connected to once it is back.
    ///
    /// # Errors
    ///
    /// Where a value is out of range, a majority is not there, or a node is set up such that it
    /// would lose leases, or is there twice; the text says what to do.
    pub async fn connect(self) -> Result<RedisQuorum, StoreError> {
        self.check()?;
        let runs = Arc::new(Mutex::new(HashMap::new()));
        let mut nodes = Vec::new();
        for (place, reach) in self.nodes.iter().enumerate() {
            let (name, connector) = self.common.standalone(&reach.url, reach.pool.clone())?;
            let admit = admission(Arc::clone(&runs), place, name.clone());
            let check = Check { eviction: self.common.eviction, admit };
            nodes.push(Arc::new(self.common.node(name, connector, check)));
        }
        look_at(&nodes).await?;
        let surely_up_for = |length: Duration| match self.quarantine {
            // Redis tells whole seconds, of either of which a part may be missing.
            Quarantine::On => length.mul_f64(1.0 + self.clock_rate_error) + SECONDS_CUT_OFF,
            Quarantine::Off => Duration::ZERO,
        };
        Ok(RedisQuorum::of(Nodes {
            all: nodes,
            max_ttl: (self.quarantine == Quarantine::On).then_some(self.max_ttl),
            least_uptime: surely_up_for(self.max_ttl),
            votes_last: self.common.timeout,
            least_uptime_to_be_given_back: surely_up_for(self.common.timeout),
            last_round: AtomicU64::new(0),
            clock_rate_error: self.clock_rate_error,
            clock: self.clock,
            contention: Contention::default(),
            background: Arc::new(Semaphore::new(MOST_IN_BACKGROUND)),
        }))
    }

    fn check(&self) -> Result<(), Fault> {
        self.common.check()?;
        if self.nodes.is_empty() {
            return Err(Fault::misconfigured("a quorum of no nodes: name three or five"));
        }
        if self.max_ttl > LeaseOptions::MAX_TTL.min(self.common.retention) {
            return Err(Fault::misconfigured(format!(
                "max_ttl {:?} is too long: at most {:?}, and no longer than the retention",
                self.max_ttl,
                LeaseOptions::MAX_TTL
            )));
        }
        if let Some(count) = self.other_count {
            return Err(Fault::misconfigured(format!(
                "{count} pools for {} nodes: give each node its own, in the order of their URLs",
                self.nodes.len()
            )));
        }
        if !(0.0..0.5).contains(&self.clock_rate_error) {
            return Err(Fault::misconfigured(format!(
                "clock-rate error {} is out of range: it is at least 0 and less than 0.5",
                self.clock_rate_error
            )));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Reach {
    /// Without the URL: it may carry a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reach")
    }
}

/// Connects to all, and waits for each: here, and only here, a hung node is waited for.
async fn look_at(nodes: &[Arc<Node>]) -> Result<(), Fault> {
    let mut looks: FuturesUnordered<_> = nodes.iter().map(|node| node.connect()).collect();
    let mut missing = Vec::new();
    while let Some(look) = looks.next().await {
        match look {
            Ok(()) => (),
            Err(fault) if fault.kind == StoreErrorKind::Unavailable => missing.push(fault),
            Err(fault) => return Err(fault),
        }
    }
    let there = nodes.len() - missing.len();
    if there > nodes.len() / 2 {
        return Ok(());
    }
    Err(too_few(there, nodes.len(), &missing))
}

/// Fewer than a majority answered, and why.
pub(crate) fn too_few(there: usize, of: usize, faults: &[Fault]) -> Fault {
    let reasons: Vec<_> = faults.iter().map(ToString::to_string).collect();
    // One that nobody has to mend is the reason to try again; without one, it would be in vain.
    let kinds = || faults.iter().map(|fault| fault.kind);
    let passes = |kind| matches!(kind, StoreErrorKind::Unavailable | StoreErrorKind::Throttled);
    let kind = kinds().find(|kind| passes(*kind)).or_else(|| kinds().next());
    let kind = kind.unwrap_or(StoreErrorKind::Unavailable);
    let needed = of / 2 + 1;
    Fault::new(
        kind,
        format!("{there} of {of} nodes took part, and {needed} are needed: {}", reasons.join("; ")),
    )
}

/// Refuses a server that is one of the other nodes already, by whatever name.
fn admission(
    runs: Arc<Mutex<HashMap<String, (usize, String)>>>,
    place: usize,
    name: String,
) -> Admit {
    Box::new(move |run| {
        let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((other, its_name)) = runs.get(run)
            && *other != place
        {
            return Err(Fault::misconfigured(format!(
                "{name} and {its_name} are the same server: a quorum needs independent ones"
            )));
        }
        // A node has one run at a time.
        runs.retain(|_, (other, _)| *other != place);
        runs.insert(run.to_owned(), (place, name.clone()));
        Ok(())
    })
}

const SECONDS_CUT_OFF: Duration = Duration::from_secs(2);

/// Calls of slow nodes that go on after their request was answered. More are given up: their
/// nodes hang, and what was sent to them is not lost for that.
const MOST_IN_BACKGROUND: usize = 10_000;
