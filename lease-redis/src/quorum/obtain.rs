//! Grants a claim by a majority, in rounds of votes.

mod round;

use std::sync::Arc;
use std::time::Duration;

use lease_core::store::{Claim, Grant, Moment, RequestNumber};
use lease_core::{FencingToken, Holder};
use tokio::time::sleep;

pub(crate) use self::round::PATIENCE;
use self::round::{Order, RoundOutcome};
use crate::error::ServerFault;
use crate::quorum::nodes::Nodes;
use crate::quorum::voting::ballot::Ballot;
use crate::quorum::voting::contention::Contenders;
use crate::quorum::voting::election::{OpenElection, Stage};
use crate::quorum::voting::unanswered::Proposed;
use crate::scripts::nonce_text;

pub(crate) struct QuorumClaim<'a> {
    nodes: &'a Arc<Nodes>,
    claim: &'a Claim,
    ask: Ask<'a>,
    /// The lease counts from before the first request, because a node's ttl starts no earlier.
    deadline: Moment,
}

enum Ask<'a> {
    Obtain,
    Adopt(&'a Grant),
}

pub(crate) enum Outcome {
    Granted(FencingToken),
    /// The holder. `None` if the key is free and the grant to adopt does not exist.
    Held(Option<Holder>),
}

impl<'a> QuorumClaim<'a> {
    pub(crate) fn obtaining(nodes: &'a Arc<Nodes>, claim: &'a Claim) -> Self {
        Self { nodes, claim, ask: Ask::Obtain, deadline: nodes.deadline(claim.ttl) }
    }

    pub(crate) fn adopting(nodes: &'a Arc<Nodes>, grant: &'a Grant, claim: &'a Claim) -> Self {
        Self { nodes, claim, ask: Ask::Adopt(grant), deadline: nodes.deadline(claim.ttl) }
    }

    /// Simultaneous claims may split the votes. Then the claim with the most votes keeps its votes, the other
    /// claims withdraw theirs, and all propose again.
    pub(crate) async fn obtain(&self) -> Result<Outcome, ServerFault> {
        let mut proposed = self.nodes.unanswered.begin(self.claim, self.nodes.clock.now());
        let outcome = self.run_rounds(&mut proposed).await?;
        proposed.answer();
        Ok(outcome)
    }

    async fn run_rounds(&self, proposed: &mut Proposed<'_>) -> Result<Outcome, ServerFault> {
        let (mut nearest, mut above, mut last) = (None, 0, None);
        self.give_way().await;
        let _open = self.nodes.shared_choice.open();
        let mut order = self.first_order();
        for number in 0..ROUNDS {
            if number > 0 {
                // Before any later round, because it may ask other nodes.
                self.nodes.asked.take(self.claim.nonce);
            }
            let started = self.nodes.clock.now();
            let token = self.nodes.propose(above)?;
            let earlier = proposed.add(token);
            match self.run_round(order, token, earlier).await? {
                RoundOutcome::Granted(token) => {
                    self.nodes.contention.granted(&self.claim.key);
                    return Ok(Outcome::Granted(token));
                }
                RoundOutcome::Held(holder) => {
                    self.nodes.asked.take(self.claim.nonce);
                    self.expect_contenders(holder.as_ref(), holder.as_ref());
                    return Ok(Outcome::Held(holder));
                }
                RoundOutcome::Outbid(election, number) => {
                    (above, last) = (number, Some(election));
                    order = Order::AllAtOnce;
                }
                RoundOutcome::Split(election) => {
                    nearest = election.read(Ballot::nearest);
                    self.expect_contenders(nearest.as_ref(), None);
                    order = self.after_split(&election, number, started).await;
                    last = (election.stage() == Stage::Over).then_some(election).or(last);
                }
                RoundOutcome::Behind(ahead) => {
                    nearest = ahead;
                    self.expect_contenders(nearest.as_ref(), None);
                    // The claim ahead has probably been granted after this pause.
                    let took = self.nodes.clock.now().since(started);
                    sleep(took / 2 + self.pause(number.min(ROUNDS_AT_ONCE))).await;
                    // The client of the claim ahead may have crashed.
                    if number + 1 >= ROUNDS_IN_ORDER {
                        order = Order::AllAtOnce;
                    }
                }
            }
        }
        if let Some(election) = last {
            election.refuse();
        }
        Ok(Outcome::Held(nearest))
    }

    /// Returns the order of the next round.
    async fn after_split(&self, election: &OpenElection, number: u32, started: Moment) -> Order {
        let nonce = nonce_text(self.claim.nonce);
        let leads = election.read(|ballot| ballot.leads(&nonce));
        if leads {
            election.close(Stage::Over);
            // Proposes again at once, to obtain the votes that the other claims withdraw.
            if let Some(number) = number.checked_sub(ROUNDS_AT_ONCE) {
                sleep(self.pause(number)).await;
            }
            return Order::AllAtOnce;
        }
        election.refuse();
        // The claim that leads has probably been granted after this pause.
        let took = self.nodes.clock.now().since(started);
        sleep(took * 2 + self.pause(number)).await;
        self.order()
    }

    /// Runs more than one round if nodes have larger counters. Usually no other claim competes.
    pub(crate) async fn adopt(&self, handed: FencingToken) -> Result<Outcome, ServerFault> {
        let mut above = handed.get();
        self.nodes.asked.take(self.claim.nonce);
        for _ in 0..ROUNDS {
            // An earlier proposal may have been granted.
            let token = self.nodes.propose(above)?;
            match self.run_round(Order::AllAtOnce, token, None).await? {
                RoundOutcome::Granted(token) => return Ok(Outcome::Granted(token)),
                RoundOutcome::Held(holder) | RoundOutcome::Behind(holder) => {
                    return Ok(Outcome::Held(holder));
                }
                RoundOutcome::Outbid(_election, number) => above = number,
                RoundOutcome::Split(election) => {
                    election.refuse();
                    return Ok(Outcome::Held(election.read(Ballot::nearest)));
                }
            }
        }
        Err(ServerFault::unavailable("other claims propose larger tokens all the time"))
    }

    /// Contenders ask all nodes at once, because they split the votes of fewer nodes more often. A repeated claim
    /// does so, too, because its earlier requests may have reached any node.
    fn first_order(&self) -> Order {
        let (now, nonce) = (self.nodes.clock.now(), self.claim.nonce);
        let repeats = self.claim.request != RequestNumber::FIRST;
        if repeats || self.contenders() != Contenders::One {
            self.nodes.asked.take(nonce);
            return self.order();
        }
        match self.nodes.first_choice(&self.claim.key) {
            Some(first) if self.nodes.asked.begin(nonce, first, now, now + self.claim.ttl) => {
                Order::MajorityFirst(first)
            }
            _ => Order::AllAtOnce,
        }
    }

    /// While a node is silent, claims split the votes more often. Then three or more contenders ask one node
    /// first, and two contenders [take turns](Self::give_way). In all other cases, splits cost less than the
    /// round trip to the first node.
    fn order(&self) -> Order {
        match self.contenders() {
            Contenders::More if self.misses_a_node() => Order::OneFirst,
            _ => Order::AllAtOnce,
        }
    }

    /// A release wakes both contenders at the same moment. Without the pause, they split half of the votes.
    /// The contender that had the key last pauses.
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

    /// Refused clients may claim the key again after the expiry of `holder`.
    fn expect_contenders(&self, other: Option<&Holder>, holder: Option<&Holder>) {
        let now = self.nodes.clock.now();
        let held_for = holder.and_then(|holder| holder.expires_in).unwrap_or_default();
        let other = other.map(|other| &other.lessee);
        let until = now + held_for + CONTENDED_FOR;
        self.nodes.contention.refused(&self.claim.key, other, until, now);
    }

    /// The pause doubles in each round, and the nonce makes it random. So simultaneous claims do not collide
    /// again.
    fn pause(&self, round: u32) -> Duration {
        let [.., chance] = self.claim.nonce.get().as_u128().rotate_right(8 * round).to_be_bytes();
        (SHORTEST_PAUSE * 2_u32.pow(round)).mul_f64(f64::from(chance) / 255.0)
    }
}

/// All rounds together take 100 ms on average.
const ROUNDS: u32 = 8;

const ROUNDS_IN_ORDER: u32 = 6;

/// The time counts from the expiry of the holder that refused a claim.
const CONTENDED_FOR: Duration = Duration::from_secs(1);

/// From this round on, the claim that keeps its votes also pauses, because other claims withdraw slowly.
const ROUNDS_AT_ONCE: u32 = 2;

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
