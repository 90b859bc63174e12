//! Asking several nodes at once, and not waiting for those that do not matter any more.

use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lease_core::{Claim, Clock, LeaseKey, Moment};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::ballot::{Ballot, majority};
use crate::contention::Contention;
use crate::error::Fault;
use crate::lock::Vote;
use crate::node::Node;
use crate::server_time::common;
use crate::store::GRAIN;

/// The nodes of a quorum, and the rules by which they are asked.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) all: Vec<Arc<Node>>,
    /// Longer claims are refused; `None` where nodes may vote as soon as they are up.
    pub(crate) max_ttl: Option<Duration>,
    pub(crate) least_uptime: Duration,
    /// How long votes count, from before they were asked for.
    pub(crate) votes_last: Duration,
    /// A node that has not been up for as long is not given back what it has forgotten: as long as
    /// votes count, it may stand in two of them.
    pub(crate) least_uptime_to_be_given_back: Duration,
    /// The number of the last round that any election may hold.
    pub(crate) last_round: AtomicU64,
    pub(crate) clock_rate_error: f64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) contention: Contention,
    /// One permit for each request whose slow nodes are still on their way.
    pub(crate) background: Arc<Semaphore>,
}

/// What each node has still to say.
pub(crate) type Answers<T> = FuturesUnordered<Answer<T>>;

/// The place of a node, and its answer.
pub(crate) type Answer<T> = BoxFuture<'static, (usize, T)>;

impl Nodes {
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn majority(&self) -> usize {
        majority(self.all.len())
    }

    /// Asks every node. What is asked may go on after this request was answered.
    pub(crate) fn ask<T, F>(&self, question: impl Fn(Arc<Node>) -> F) -> Answers<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let asked = self.all.iter().enumerate().map(|(place, node)| {
            let answer = question(Arc::clone(node));
            async move { (place, answer.await) }.boxed()
        });
        asked.collect()
    }

    /// All nodes, in an order that depends on `key` and is the same for all clients whose URLs have the
    /// same hosts. Clients that disagree lose speed only.
    pub(crate) fn in_order_of(&self, key: &LeaseKey) -> Vec<(usize, &Arc<Node>)> {
        let mut nodes: Vec<_> = self.all.iter().enumerate().collect();
        nodes.sort_by_cached_key(|(_, node)| {
            let mut hasher = DefaultHasher::new();
            (key, &node.name).hash(&mut hasher);
            hasher.finish()
        });
        nodes
    }

    /// The next answer to what `ballot` counts. `None` once all have come, after `limit`, or as soon as
    /// too many of the nodes that have not answered are silent for the others to decide.
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

    /// How long until fewer than `needed` of the nodes that have not answered are still expected to.
    fn silence_of(&self, ballot: &Ballot, needed: usize) -> Duration {
        let missing = ballot.missing_places().filter_map(|place| self.all.get(place));
        // A node that owes no answer has yet to be asked.
        let mut silent_in: Vec<_> = missing
            .map(|node| node.silent_at().map_or(Duration::MAX, |at| at.since(node.now())))
            .collect();
        silent_in.sort_unstable_by(|one, other| other.cmp(one));
        silent_in.get(needed.saturating_sub(1)).copied().unwrap_or(Duration::ZERO)
    }

    /// Lets the answers that nobody waits for come in, and `then` see to each. Whether they do
    /// changes no promise, so where too many are on their way, these are dropped.
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

    /// The middle one of the times that nodes have told, in microseconds since 1970.
    pub(crate) fn common_time(&self) -> Option<u64> {
        common(self.all.iter().filter_map(|node| node.time()))
    }

    /// The number of the first of so many `rounds`. All of them come after those of every earlier
    /// election, also of one that still goes on: a claim may be made again meanwhile.
    pub(crate) fn first_of(&self, rounds: u64) -> u64 {
        self.last_round.fetch_add(rounds, Ordering::Relaxed) + 1
    }

    /// Takes back what `claim` was granted up to `round`, on every node: also on one that has yet
    /// to hear of the claim, if it hears of it before this.
    pub(crate) fn take_back(&self, claim: &Claim, round: u64) {
        let withdrawals = self.ask(|node| {
            let claim = claim.clone();
            async move { node.withdraw(&claim, round).await }
        });
        self.in_background(withdrawals, |_, _| async {});
    }

    /// Refuses a ttl that outlasts the quarantine of a node that restarted.
    pub(crate) fn check(&self, ttl: Duration) -> Result<(), Fault> {
        match self.max_ttl {
            Some(most) if ttl > most => Err(Fault::misconfigured(format!(
                "a ttl of {ttl:?} is longer than the {most:?} for which a node that restarted \
                 keeps from voting: shorten it, or set `with_max_ttl` for all who use these nodes"
            ))),
            _ => self.all.iter().try_for_each(|node| node.check(ttl)),
        }
    }

    /// Until when what is claimed now may be believed: the holder's own rule.
    pub(crate) fn deadline(&self, ttl: Duration) -> Moment {
        let trusted = ttl.mul_f64(1.0 - self.clock_rate_error).saturating_sub(GRAIN);
        self.clock.now() + trusted
    }

    /// A node that may not vote yet, with its name and how long it will take.
    pub(crate) fn named(&self, place: usize, vote: Result<Vote, Fault>) -> Result<Vote, Fault> {
        match vote {
            Ok(Vote::Restarted { up }) => {
                let name = self.all.get(place).map_or("a node", |node| &*node.name);
                let left = self.least_uptime.saturating_sub(up);
                Err(Fault::unavailable(format!(
                    "{name} restarted {up:?} ago, and may have forgotten leases: it votes again \
                     in {left:?}"
                )))
            }
            other => other,
        }
    }
}
