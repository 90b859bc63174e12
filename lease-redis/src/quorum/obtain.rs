//! Grants a claim by a majority, in rounds of votes.
//!
//! `voting` runs one round: it collects the votes, counts them, and writes the token back.

mod voting;

use std::time::Duration;

use lease_core::store::{Claim, Moment};
use lease_core::{Attributes, FencingToken, Holder};
use tokio::time::sleep;

pub(crate) use self::voting::PATIENCE;
use self::voting::{Order, RoundOutcome};
use crate::connection::node::Node;
use crate::error::ServerFault;
use crate::lock_requests::{GrantKind, Round};
use crate::quorum::ballot::Ballot;
use crate::quorum::contention::Contenders;
use crate::quorum::nodes::{Answers, Nodes};
use crate::scripts::Call;

/// A claim on a quorum.
pub(crate) struct QuorumClaim<'a> {
    nodes: &'a Nodes,
    claim: &'a Claim,
    /// Counted from before the first request: a node's ttl starts no earlier.
    deadline: Moment,
    first_round: u64,
}

pub(crate) enum Outcome {
    Granted(GrantKind, FencingToken, Attributes),
    /// `None` if the key is free, but its grant to adopt does not exist.
    Held(Option<Holder>),
}

impl<'a> QuorumClaim<'a> {
    pub(crate) fn new(nodes: &'a Nodes, claim: &'a Claim) -> Self {
        let first_round = nodes.first_of(ROUNDS.into());
        Self { nodes, claim, deadline: nodes.deadline(claim.ttl), first_round }
    }

    /// Runs rounds until a claim has a majority.
    ///
    /// Claims that arrive at the same moment may split the votes. The claim that goes first keeps its
    /// votes, the others withdraw, and all ask again.
    pub(crate) async fn obtain(
        &self,
        call_of: impl Fn(&Node, &Claim, Round) -> Call + Send + Sync,
    ) -> Result<Outcome, ServerFault> {
        let mut nearest = None;
        self.give_way().await;
        let mut order = self.order();
        for number in 0..ROUNDS {
            let (round, started) = (self.round(number), self.nodes.clock.now());
            match self.run_round(round, order, &call_of).await? {
                RoundOutcome::Decided(outcome) => {
                    match &outcome {
                        Outcome::Granted(..) => self.nodes.contention.granted(&self.claim.key),
                        Outcome::Held(holder) => {
                            self.expect_contenders(holder.as_ref(), holder.as_ref());
                        }
                    }
                    return Ok(outcome);
                }
                RoundOutcome::Split(ballot) => {
                    nearest = ballot.nearest();
                    self.expect_contenders(nearest.as_ref(), None);
                    if ballot.keeps_votes(&self.claim.nonce.to_string()) {
                        order = Order::AllAtOnce;
                        // Asks again at once, to be the next claim on the nodes from which others withdraw.
                        if let Some(number) = number.checked_sub(ROUNDS_AT_ONCE) {
                            sleep(self.pause(number)).await;
                        }
                    } else {
                        order = self.order();
                        self.withdraw(round, &ballot);
                        // Waits long enough for the claim that goes first to be granted.
                        let took = self.nodes.clock.now().since(started);
                        sleep(took * 2 + self.pause(number)).await;
                    }
                }
                RoundOutcome::Behind(ahead) => {
                    nearest = ahead;
                    self.expect_contenders(nearest.as_ref(), None);
                    // Waits long enough for the claim ahead to be granted: an earlier request would be
                    // refused again.
                    let took = self.nodes.clock.now().since(started);
                    sleep(took / 2 + self.pause(number)).await;
                    // The client of the claim ahead may have crashed.
                    if number + 1 >= ROUNDS_IN_ORDER {
                        order = Order::AllAtOnce;
                    }
                }
            }
        }
        self.nodes.withdraw_everywhere(self.claim, self.round(ROUNDS - 1).number);
        Ok(Outcome::Held(nearest))
    }

    /// While a node is silent, three or more contenders ask one node first: with fewer nodes, votes are
    /// split more often. While all nodes answer, an occasional split costs less than a second round trip
    /// for every claim. Two contenders [take turns](Self::give_way) instead.
    fn order(&self) -> Order {
        match self.contenders() {
            Contenders::More if self.misses_a_node() => Order::OneFirst,
            _ => Order::AllAtOnce,
        }
    }

    /// Pauses if a node is silent and this client had the key last, so that the other of two contenders
    /// asks first.
    ///
    /// A release reaches both contenders at the same moment. Without the pause, they split the votes half
    /// of the time.
    async fn give_way(&self) {
        if self.contenders() == (Contenders::Two { granted: true }) && self.misses_a_node() {
            let live = self.nodes.all.iter().filter(|node| !node.is_silent());
            sleep(live.map(|node| node.response_time()).max().unwrap_or_default() / 2).await;
        }
    }

    fn contenders(&self) -> Contenders {
        self.nodes.contention.contenders(&self.claim.key, self.nodes.clock.now())
    }

    fn misses_a_node(&self) -> bool {
        self.nodes.all.iter().any(|node| node.is_silent())
    }

    /// A claim that was refused may be made again when the key is free: once its `holder` has expired.
    fn expect_contenders(&self, other: Option<&Holder>, holder: Option<&Holder>) {
        let now = self.nodes.clock.now();
        let held_for = holder.and_then(|holder| holder.expires_in).unwrap_or_default();
        let other = other.map(|other| &other.lessee);
        let until = now + held_for + CONTENDED_FOR;
        self.nodes.contention.refused(&self.claim.key, other, until, now);
    }

    /// Runs one round: a grant is handed over to one claim, so no other competes.
    pub(crate) async fn obtain_once(
        &self,
        call_of: impl Fn(&Node, &Claim, Round) -> Call + Send + Sync,
    ) -> Result<Outcome, ServerFault> {
        let round = self.round(0);
        match self.run_round(round, Order::AllAtOnce, &call_of).await? {
            RoundOutcome::Decided(outcome) => Ok(outcome),
            RoundOutcome::Split(ballot) => {
                self.nodes.withdraw_everywhere(self.claim, round.number);
                Ok(Outcome::Held(ballot.nearest()))
            }
            RoundOutcome::Behind(holder) => Ok(Outcome::Held(holder)),
        }
    }

    fn round(&self, number: u32) -> Round {
        Round {
            number: self.first_round + u64::from(number),
            proposed_time: self.nodes.common_time().unwrap_or(0),
        }
    }

    /// Returns a random part of a pause that doubles in each round, so that simultaneous claims do not
    /// collide again. The nonce is the source of randomness.
    fn pause(&self, round: u32) -> Duration {
        let [.., chance] = self.claim.nonce.get().as_u128().rotate_right(8 * round).to_be_bytes();
        (SHORTEST_PAUSE * 2_u32.pow(round)).mul_f64(f64::from(chance) / 255.0)
    }

    fn withdraw(&self, round: Round, ballot: &Ballot) {
        if ballot.answered() < self.nodes.count() {
            // A node that has not answered may yet grant the claim.
            self.nodes.withdraw_everywhere(self.claim, round.number);
            return;
        }
        let withdrawals = Answers::new();
        for (place, _) in &ballot.granted {
            let (place, claim) = (*place, self.claim.clone());
            if let Some(node) = self.nodes.all.get(place).cloned() {
                withdrawals.push(Box::pin(async move {
                    (place, node.withdraw(&claim, round.number).await)
                }));
            }
        }
        self.nodes.in_background(withdrawals, |_, _| async {});
    }
}

/// All rounds together take 100 ms on average.
const ROUNDS: u32 = 8;

/// After this many rounds, a claim asks all nodes at once.
const ROUNDS_IN_ORDER: u32 = 6;

/// How long a key counts as contended after the holder that refused a claim may have expired.
const CONTENDED_FOR: Duration = Duration::from_secs(1);

/// After this many rounds, the claim that goes first also pauses, since the others withdraw slowly.
const ROUNDS_AT_ONCE: u32 = 2;

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
