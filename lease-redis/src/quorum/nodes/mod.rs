//! The nodes of a quorum.
//!
//! Start with [`Nodes`] below. [`first_choice`] selects the nodes that a claim asks first, and [`asked`] stores
//! them until the release. Simultaneous claims [share their choice](shared_choice). The [`dispatcher`] sends
//! claims and releases to nodes in batches, each by a [`writer`]. [`requests`] calls the scripts that are not
//! batched. [`lock_text`] parses the text of a lock.

pub(crate) mod asked;
pub(crate) mod dispatcher;
mod first_choice;
pub(crate) mod lock_text;
pub(crate) mod requests;
pub(crate) mod shared_choice;
pub(crate) mod writer;

use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lease_core::store::{Clock, Moment};
use lease_core::{FencingToken, LeaseKey};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::connection::node::Node;
use crate::connection::server_time::median;
use crate::connection::watches::watched::WatchedChannels;
use crate::error::ServerFault;
use crate::quorum::nodes::asked::AskedNodes;
use crate::quorum::nodes::dispatcher::Dispatcher;
pub(crate) use crate::quorum::nodes::first_choice::Probes;
use crate::quorum::nodes::shared_choice::SharedChoice;
use crate::quorum::voting::ballot::{Ballot, majority};
use crate::quorum::voting::contention::Contention;
use crate::quorum::voting::election::Proposal;
use crate::quorum::voting::proposals::Proposals;
use crate::quorum::voting::unanswered::UnansweredClaims;
use crate::scripts::GRAIN;
use crate::scripts::key_space::KeySpace;

#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) all: Vec<Arc<Node>>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) keys: KeySpace,
    /// The value is `None` if nodes vote without a rejoin delay.
    pub(crate) max_ttl: Option<Duration>,
    /// The validity of votes counts from before the requests were sent.
    pub(crate) vote_validity: Duration,
    /// The votes of a restarted node from before the restart may still be valid. With a restored grant, the
    /// node would count twice.
    pub(crate) restore_delay: Duration,
    pub(crate) proposals: Proposals,
    pub(crate) watched: Arc<WatchedChannels>,
    pub(crate) clock_rate_error: f64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) contention: Contention,
    pub(crate) unanswered: UnansweredClaims,
    pub(crate) asked: Arc<AskedNodes>,
    pub(crate) probes: Probes,
    pub(crate) shared_choice: SharedChoice,
    /// Limits the number of requests whose remaining answers are received in the background.
    pub(crate) background: Arc<Semaphore>,
}

pub(crate) type Answers<T> = FuturesUnordered<Answer<T>>;

pub(crate) type Answer<T> = BoxFuture<'static, (usize, T)>;

impl Nodes {
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn majority(&self) -> usize {
        majority(self.all.len())
    }

    /// The requests may outlast this call.
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

    /// Clients whose URLs have the same hosts compute the same order. A different order costs only speed.
    pub(crate) fn in_order_of(&self, key: &LeaseKey) -> Vec<(usize, &Arc<Node>)> {
        let mut nodes: Vec<_> = self.all.iter().enumerate().collect();
        nodes.sort_by_cached_key(|(_, node)| {
            let mut hasher = DefaultHasher::new();
            (key, &node.name).hash(&mut hasher);
            hasher.finish()
        });
        nodes
    }

    /// Returns `None` once all nodes have answered, or after `limit`. If `needed` is given, also returns
    /// `None` once fewer than `needed` nodes of `ballot` are missing and not silent.
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

    /// Returns the time after which fewer than `needed` of the missing nodes are expected to answer.
    pub(crate) fn silence_of(&self, ballot: &Ballot, needed: usize) -> Duration {
        let missing = ballot.missing_places().filter_map(|place| self.all.get(place));
        // A node to which no request was sent owes no answer, so it is not silent.
        let mut silent_in: Vec<_> = missing
            .map(|node| node.silent_at().map_or(Duration::MAX, |at| at.since(node.now())))
            .collect();
        silent_in.sort_unstable_by(|one, other| other.cmp(one));
        silent_in.get(needed.saturating_sub(1)).copied().unwrap_or(Duration::ZERO)
    }

    /// Receives the remaining answers on a spawned task. No promise depends on these answers, so they are
    /// dropped if too many requests wait in the background.
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

    pub(crate) fn propose(&self, seen: u64) -> Result<FencingToken, ServerFault> {
        let time = median(self.all.iter().filter_map(|node| node.time()));
        self.proposals.next(time.unwrap_or(0), seen)
    }

    /// Also withdraws the votes for earlier proposals of the claim.
    pub(crate) fn withdraw(&self, proposal: &Proposal, places: Vec<usize>) {
        let nodes = places.into_iter().filter_map(|place| Some((place, self.all.get(place)?)));
        let withdrawals = nodes.map(|(place, node)| {
            let (node, call) = (Arc::clone(node), node.withdraw_call(proposal));
            async move { (place, node.call_bool(&call).await) }.boxed()
        });
        self.in_background(withdrawals.collect::<Answers<_>>(), |_, _| async {});
    }

    pub(crate) fn check(&self, ttl: Duration) -> Result<(), ServerFault> {
        match self.max_ttl {
            Some(max) if ttl > max => Err(ServerFault::misconfigured(format!(
                "the ttl {ttl:?} is longer than the rejoin delay {max:?} of a restarted node: shorten the \
                 ttl, or raise `with_max_ttl` for all clients of these nodes"
            ))),
            _ => self.all.iter().try_for_each(|node| node.check(ttl)),
        }
    }

    /// The holder computes its deadline by the same formula.
    pub(crate) fn deadline(&self, ttl: Duration) -> Moment {
        let trusted = ttl.mul_f64(1.0 - self.clock_rate_error).saturating_sub(GRAIN);
        self.clock.now() + trusted
    }
}
