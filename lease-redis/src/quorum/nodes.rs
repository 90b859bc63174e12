//! The nodes of a quorum: sends requests to all and waits only for answers that can still matter.

use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lease_core::LeaseKey;
use lease_core::store::{Claim, Clock, Moment};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::connection::node::Node;
use crate::connection::server_time::median;
use crate::error::ServerFault;
use crate::lock_requests::GRAIN;
use crate::quorum::ballot::{Ballot, majority};
use crate::quorum::contention::Contention;

/// The nodes of a quorum, and the limits of their requests.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) all: Vec<Arc<Node>>,
    /// The longest ttl of a claim. `None` if nodes vote without a rejoin delay.
    pub(crate) max_ttl: Option<Duration>,
    /// How long votes are valid, counted from before the requests were sent.
    pub(crate) vote_validity: Duration,
    /// How long a restarted node must be up before grants are restored on it. Its votes from before the
    /// restart are valid until then, so it would count twice.
    pub(crate) restore_delay: Duration,
    /// The number of the last round of any claim.
    pub(crate) last_round: AtomicU64,
    pub(crate) clock_rate_error: f64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) contention: Contention,
    /// One permit for each request whose remaining answers are received in the background.
    pub(crate) background: Arc<Semaphore>,
}

/// The answers that have not arrived yet.
pub(crate) type Answers<T> = FuturesUnordered<Answer<T>>;

/// The index of a node, and its answer.
pub(crate) type Answer<T> = BoxFuture<'static, (usize, T)>;

impl Nodes {
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn majority(&self) -> usize {
        majority(self.all.len())
    }

    /// Sends a request to every node. The requests may outlast the call that sent them.
    pub(crate) fn send_all<T, F>(&self, request: impl Fn(Arc<Node>) -> F) -> Answers<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let asked = self.all.iter().enumerate().map(|(place, node)| {
            let answer = request(Arc::clone(node));
            async move { (place, answer.await) }.boxed()
        });
        asked.collect()
    }

    /// Returns all nodes in an order that depends on `key`. Clients whose URLs have the same hosts compute
    /// the same order. A different order costs only speed.
    pub(crate) fn in_order_of(&self, key: &LeaseKey) -> Vec<(usize, &Arc<Node>)> {
        let mut nodes: Vec<_> = self.all.iter().enumerate().collect();
        nodes.sort_by_cached_key(|(_, node)| {
            let mut hasher = DefaultHasher::new();
            (key, &node.name).hash(&mut hasher);
            hasher.finish()
        });
        nodes
    }

    /// Returns the next answer. Returns `None` once all nodes have answered, or after `limit`. With
    /// `needed`, also returns `None` once fewer than `needed` of the nodes that are missing in `ballot` are
    /// expected to answer: the others are silent.
    pub(crate) async fn next_answer<T>(
        &self,
        ballot: &Ballot,
        answers: &mut Answers<T>,
        needed: Option<usize>,
        limit: Duration,
    ) -> Option<(usize, T)> {
        let limit = match needed {
            Some(needed) => limit.min(self.silence_of(ballot, needed)),
            None => limit,
        };
        timeout(limit, answers.next()).await.ok().flatten()
    }

    /// Returns the time until fewer than `needed` of the missing nodes are expected to answer.
    fn silence_of(&self, ballot: &Ballot, needed: usize) -> Duration {
        let missing = ballot.missing_places().filter_map(|place| self.all.get(place));
        // A node from which no answer is due was not asked yet, so it is not silent.
        let mut silent_in: Vec<_> = missing
            .map(|node| node.silent_at().map_or(Duration::MAX, |at| at.since(node.now())))
            .collect();
        silent_in.sort_unstable_by(|one, other| other.cmp(one));
        silent_in.get(needed.saturating_sub(1)).copied().unwrap_or(Duration::ZERO)
    }

    /// Receives the remaining answers on a spawned task, and passes each to `then`. Drops the answers if
    /// too many requests wait in the background: no promise depends on these answers.
    pub(crate) fn in_background<T, F>(
        &self,
        mut answers: Answers<T>,
        mut then: impl FnMut(usize, T) -> F + Send + 'static,
    ) where
        T: Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        if answers.is_empty() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.background).try_acquire_owned() else {
            return;
        };
        tokio::spawn(async move {
            while let Some((place, answer)) = answers.next().await {
                then(place, answer).await;
            }
            drop(permit);
        });
    }

    /// The median of the nodes' times, in microseconds since 1970.
    pub(crate) fn common_time(&self) -> Option<u64> {
        median(self.all.iter().filter_map(|node| node.time()))
    }

    /// Reserves the numbers of `rounds` rounds and returns the first. They are larger than the numbers of
    /// every earlier claim, even one in progress: a claim may be repeated while its first attempt runs.
    pub(crate) fn first_of(&self, rounds: u64) -> u64 {
        self.last_round.fetch_add(rounds, Ordering::Relaxed) + 1
    }

    /// Withdraws the votes for `claim` up to `round` on every node. This includes the vote of a node that
    /// receives the claim late, but before the withdrawal.
    pub(crate) fn withdraw_everywhere(&self, claim: &Claim, round: u64) {
        let withdrawals = self.send_all(|node| {
            let claim = claim.clone();
            async move { node.withdraw(&claim, round).await }
        });
        self.in_background(withdrawals, |_, _| async {});
    }

    /// Refuses a ttl that is longer than the rejoin delay of a restarted node.
    pub(crate) fn check(&self, ttl: Duration) -> Result<(), ServerFault> {
        match self.max_ttl {
            Some(max) if ttl > max => Err(ServerFault::misconfigured(format!(
                "the ttl {ttl:?} is longer than the rejoin delay {max:?} of a restarted node: shorten the \
                 ttl, or raise `with_max_ttl` for all clients of these nodes"
            ))),
            _ => self.all.iter().try_for_each(|node| node.check(ttl)),
        }
    }

    /// Returns the deadline of a claim that is made now. The holder computes its deadline the same way.
    pub(crate) fn deadline(&self, ttl: Duration) -> Moment {
        let trusted = ttl.mul_f64(1.0 - self.clock_rate_error).saturating_sub(GRAIN);
        self.clock.now() + trusted
    }
}
