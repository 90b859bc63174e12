//! Grants a claim by a majority: collects votes, counts them, and writes the token back.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lease_core::store::{Claim, Moment};
use lease_core::{Attributes, FencingToken, Holder};
use tokio::select;
use tokio::time::{sleep, timeout};

use crate::connection::node::Node;
use crate::error::ServerFault;
use crate::lock_requests::{GrantKind, Round, Vote};
use crate::quorum::ballot::{Ballot, VoteCount, too_few};
use crate::quorum::contention::Contenders;
use crate::quorum::nodes::{Answer, Answers, Nodes};
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
    Granted(FencingToken, Attributes),
    /// `None` if the key is free, but its grant to adopt does not exist.
    Held(Option<Holder>),
}

/// The result of one round.
enum RoundOutcome {
    Decided(Outcome),
    /// Several claims share the nodes, and none has a majority.
    Split(Ballot),
    /// The node that is asked first has granted another claim, which has no majority yet.
    Behind(Option<Holder>),
}

/// The order in which the nodes receive the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    AllAtOnce,
    /// One node first, and the others once that node has granted the claim. So one claim at a time asks
    /// the others, and votes are not split.
    OneFirst,
}

/// Queries for the key's holder, sent together with the first request for a vote.
struct HolderQueries {
    queries: Answers<Result<Vote, ServerFault>>,
    seen: Ballot,
}

impl HolderQueries {
    async fn until_vote(
        &mut self,
        votes: &mut Answers<Result<Vote, ServerFault>>,
    ) -> Option<(usize, Result<Vote, ServerFault>)> {
        loop {
            select! {
                // The vote first: it decides.
                biased;
                vote = votes.next() => return vote,
                Some((place, answer)) = self.queries.next() => self.seen.add(place, answer),
            }
        }
    }
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
        call_of: impl Fn(&Node, Round) -> Call + Send + Sync,
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
                        // At once, to be the next claim on the nodes from which others withdraw.
                        if let Some(number) = number.checked_sub(ROUNDS_AT_ONCE) {
                            sleep(self.pause(number)).await;
                        }
                    } else {
                        order = self.order();
                        self.withdraw(round, &ballot);
                        // Long enough for the claim that goes first to be granted before.
                        let took = self.nodes.clock.now().since(started);
                        sleep(took * 2 + self.pause(number)).await;
                    }
                }
                RoundOutcome::Behind(ahead) => {
                    nearest = ahead;
                    self.expect_contenders(nearest.as_ref(), None);
                    // Long enough for the claim ahead to be granted: an earlier request would be refused
                    // again.
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

    /// Three or more contenders ask one node first while a node is silent: then fewer nodes answer, and
    /// votes are split more often. While all nodes answer, a split now and then costs less than the
    /// second round trip of every claim. Two contenders [take turns](Self::give_way) instead.
    fn order(&self) -> Order {
        match self.contenders() {
            Contenders::More if self.misses_a_node() => Order::OneFirst,
            _ => Order::AllAtOnce,
        }
    }

    /// Lets the other one of two contenders ask first, while a node is silent, if this client had the key
    /// last.
    ///
    /// A release reaches both contenders at the same moment. Without this, they split the votes as often as
    /// not.
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
        call_of: impl Fn(&Node, Round) -> Call + Send + Sync,
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

    async fn run_round(
        &self,
        round: Round,
        order: Order,
        call_of: &(impl Fn(&Node, Round) -> Call + Send + Sync),
    ) -> Result<RoundOutcome, ServerFault> {
        let until = self.nodes.clock.now() + self.nodes.vote_validity;
        let mut ballot = Ballot::new(self.nodes.count());
        let mut votes = Answers::new();
        let mut others: Vec<_> = self.nodes.all.iter().enumerate().collect();
        if order == Order::OneFirst {
            let (queries, seen) = (self.query_holder(), Ballot::new(self.nodes.count()));
            let mut queries = HolderQueries { queries, seen };
            for (place, node) in self.nodes.in_order_of(&self.claim.key) {
                if node.is_silent() {
                    continue;
                }
                others.retain(|(other, _)| *other != place);
                votes.push(vote_of(place, node, call_of(node, round)));
                let answer = timeout(node.patience(), queries.until_vote(&mut votes)).await;
                if let Ok(Some((place, vote))) = answer {
                    ballot.add(place, vote);
                }
                if !ballot.rivals.is_empty() {
                    return Ok(self.behind(round, &ballot, votes, queries).await);
                }
                if !ballot.granted.is_empty() {
                    break;
                }
            }
        }
        for (place, node) in others {
            votes.push(vote_of(place, node, call_of(node, round)));
        }
        self.count_votes(round, until, ballot, votes).await
    }

    /// Counts votes until they decide. Votes that a majority has given after `until` are not valid.
    async fn count_votes(
        &self,
        round: Round,
        until: Moment,
        mut ballot: Ballot,
        mut votes: Answers<Result<Vote, ServerFault>>,
    ) -> Result<RoundOutcome, ServerFault> {
        // Contenders that split the nodes which answer do not wait for nodes that are silent.
        while let Some((place, vote)) = self
            .nodes
            .next_answer(&ballot, &mut votes, ballot.needed_of_missing(), Duration::MAX)
            .await
        {
            ballot.add(place, vote);
            match ballot.count() {
                VoteCount::Open => (),
                VoteCount::Granted(_) if self.nodes.clock.now() >= until => {
                    // A node that voted may have restarted since, and helped the former holder.
                    self.nodes.withdraw_everywhere(self.claim, round.number);
                    return Err(ServerFault::unavailable("the votes came too late to be counted"));
                }
                VoteCount::Granted(token) => {
                    if ballot.kind == GrantKind::New {
                        return self.confirm(round, token, ballot, votes).await;
                    }
                    // A lost reply had granted the claim before: the earlier token is on a majority.
                    let agreed = |ballot: &Ballot| ballot.agreed().is_some();
                    self.await_more(&mut ballot, &mut votes, agreed).await;
                    let token = ballot.agreed().unwrap_or(token);
                    return self.confirm(round, token, ballot, votes).await;
                }
                VoteCount::Refused => break,
            }
        }
        self.refused(round, ballot, votes).await
    }

    /// Asks all nodes which claim they have granted.
    fn query_holder(&self) -> Answers<Result<Vote, ServerFault>> {
        self.nodes.send_all(|node| {
            let key = self.claim.key.clone();
            async move { Ok(node.holder(&key).await?.map_or(Vote::Gone, Vote::Held)) }
        })
    }

    /// The first node has granted another claim. Finds out whether that claim has a majority.
    async fn behind(
        &self,
        round: Round,
        ballot: &Ballot,
        votes: Answers<Result<Vote, ServerFault>>,
        queries: HolderQueries,
    ) -> RoundOutcome {
        if !votes.is_empty() {
            // A node that has not answered may yet grant the claim.
            self.nodes.withdraw_everywhere(self.claim, round.number);
            self.nodes.in_background(votes, |_, _| async {});
        }
        let HolderQueries { mut queries, mut seen } = queries;
        let known = |seen: &Ballot| match seen.holder() {
            Some(_) => seen.holder_is_agreed(),
            None => !seen.holder_may_appear(),
        };
        self.await_more(&mut seen, &mut queries, known).await;
        self.nodes.in_background(queries, |_, _| async {});
        match seen.holder() {
            Some(holder) => RoundOutcome::Decided(Outcome::Held(Some(holder))),
            None => RoundOutcome::Behind(ballot.nearest()),
        }
    }

    /// Receives further answers until `enough` is known. Does not wait for silent nodes.
    async fn await_more(
        &self,
        ballot: &mut Ballot,
        votes: &mut Answers<Result<Vote, ServerFault>>,
        enough: impl Fn(&Ballot) -> bool,
    ) {
        while !enough(ballot) {
            let Some((place, vote)) =
                self.nodes.next_answer(ballot, votes, Some(1), PATIENCE).await
            else {
                return;
            };
            ballot.add(place, vote);
        }
    }

    /// Writes `token` back to the nodes that counted to less, until a majority has it.
    ///
    /// A later claim also needs a majority, and so at least one node with this token, which then counts
    /// further. This does not depend on expiries or clocks.
    async fn confirm(
        &self,
        round: Round,
        token: FencingToken,
        ballot: Ballot,
        mut votes: Answers<Result<Vote, ServerFault>>,
    ) -> Result<RoundOutcome, ServerFault> {
        let mut faults = ballot.faults;
        let mut have_it = 0;
        let mut raises = Answers::new();
        for (place, counted) in ballot.granted {
            // A node that counted further has granted a larger token and does not count for this one. It
            // still receives the token, since others query it for the holder's token.
            have_it += usize::from(counted == token);
            match counted.cmp(&token) {
                Ordering::Less => self.raise(place, token, &raises),
                Ordering::Equal => (),
                Ordering::Greater => self.report_token(place, token),
            }
        }
        while have_it < self.nodes.majority() {
            select! {
                // Writing back comes first, so that it is sent before anything that follows.
                biased;
                Some((_, raised)) = raises.next() => match raised {
                    Ok(true) => have_it += 1,
                    Ok(false) => faults.push(ServerFault::unavailable("a node freed the key too soon")),
                    Err(fault) => faults.push(fault),
                },
                Some((place, vote)) = votes.next() => match vote {
                    Ok(Vote::Granted(counted, ..)) => {
                        have_it += usize::from(counted == token);
                        match counted.cmp(&token) {
                            Ordering::Less => self.raise(place, token, &raises),
                            Ordering::Equal => (),
                            Ordering::Greater => self.report_token(place, token),
                        }
                    }
                    Ok(_) => (),
                    Err(fault) => faults.push(fault),
                },
                else => return Err(too_few(have_it, self.nodes.count(), &faults)),
            }
        }
        if self.nodes.clock.now() >= self.deadline {
            self.nodes.withdraw_everywhere(self.claim, round.number);
            return Err(ServerFault::unavailable("the key was granted too late to be of use"));
        }
        self.nodes.in_background(raises, |_, _| async {});
        self.raise_late_ones(token, votes);
        Ok(RoundOutcome::Decided(Outcome::Granted(token, ballot.attributes)))
    }

    /// A majority is impossible. Finds the holder, or that the votes are split.
    async fn refused(
        &self,
        round: Round,
        mut ballot: Ballot,
        mut votes: Answers<Result<Vote, ServerFault>>,
    ) -> Result<RoundOutcome, ServerFault> {
        // One or two more answers usually show the holder. If too few nodes took part, further answers are
        // awaited too: the error reports how many there are.
        let majority = self.nodes.majority();
        let known = |ballot: &Ballot| {
            let nobody_can = !ballot.holder_may_appear() && ballot.answered() >= majority;
            ballot.holder().is_some() || nobody_can || ballot.missing() == 0
        };
        self.await_more(&mut ballot, &mut votes, known).await;
        let agreed = |ballot: &Ballot| ballot.holder().is_none() || ballot.holder_is_agreed();
        self.await_more(&mut ballot, &mut votes, agreed).await;
        // An answer that comes late still shows that its node is not silent any more.
        self.nodes.in_background(votes, |_, _| async {});
        if let Some(holder) = ballot.holder() {
            if !ballot.granted.is_empty() || ballot.missing() > 0 {
                self.nodes.withdraw_everywhere(self.claim, round.number);
            }
            return Ok(RoundOutcome::Decided(Outcome::Held(Some(holder))));
        }
        if ballot.is_gone() {
            self.nodes.withdraw_everywhere(self.claim, round.number);
            return Ok(RoundOutcome::Decided(Outcome::Held(None)));
        }
        if ballot.answered() < self.nodes.majority() {
            // The votes are kept for a repeated claim with the same nonce.
            return Err(too_few(ballot.answered(), self.nodes.count(), &ballot.faults));
        }
        Ok(RoundOutcome::Split(ballot))
    }

    /// A random part of a pause that doubles, so that claims that came together do not come
    /// together again. The nonce is all the chance that this takes.
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

    fn raise(
        &self,
        place: usize,
        token: FencingToken,
        raises: &Answers<Result<bool, ServerFault>>,
    ) {
        let claim = self.claim.clone();
        if let Some(node) = self.nodes.all.get(place).cloned() {
            raises.push(Box::pin(async move { (place, node.raise(&claim, token).await) }));
        }
    }

    fn report_token(&self, place: usize, token: FencingToken) {
        let raises = Answers::new();
        self.raise(place, token, &raises);
        self.nodes.in_background(raises, |_, _| async {});
    }

    /// Brings the nodes that answer after the grant to the same count, so that the next grant
    /// takes one round trip.
    fn raise_late_ones(&self, token: FencingToken, votes: Answers<Result<Vote, ServerFault>>) {
        let (claim, nodes) = (self.claim.clone(), self.nodes.all.clone());
        self.nodes.in_background(votes, move |place, vote| {
            let (claim, node) = (claim.clone(), nodes.get(place).cloned());
            async move {
                if let (Ok(Vote::Granted(counted, ..)), Some(node)) = (vote, node)
                    && counted != token
                {
                    // The next heartbeat does it otherwise.
                    drop(node.raise(&claim, token).await);
                }
            }
        });
    }
}

/// All rounds together take 100 ms on average.
const ROUNDS: u32 = 8;

/// Requests the vote of one node.
fn vote_of(place: usize, node: &Arc<Node>, call: Call) -> Answer<Result<Vote, ServerFault>> {
    let node = Arc::clone(node);
    async move { (place, node.vote(&call).await) }.boxed()
}

/// In a later round, claims ask all nodes at once.
const ROUNDS_IN_ORDER: u32 = 6;

/// How long a key counts as contended, from when the holder that refused a claim may expire.
const CONTENDED_FOR: Duration = Duration::from_secs(1);

/// A claim that goes first pauses from then on: others withdraw slowly.
const ROUNDS_AT_ONCE: u32 = 2;

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The time limit for answers that can only show the holder.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);
