//! One round of a claim: collects the votes of the nodes, counts them, and writes the token back.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lease_core::store::{Claim, Moment};
use lease_core::{FencingToken, Holder};
use tokio::select;
use tokio::time::timeout;

use super::{Outcome, QuorumClaim};
use crate::connection::node::Node;
use crate::error::ServerFault;
use crate::lock_requests::{GrantKind, Round, Vote};
use crate::quorum::ballot::{Ballot, VoteCount, too_few};
use crate::quorum::nodes::{Answer, Answers};
use crate::scripts::Call;

/// The result of one round.
pub(super) enum RoundOutcome {
    Decided(Outcome),
    /// Several claims share the nodes, and none has a majority.
    Split(Ballot),
    /// The node that is asked first has granted another claim, which has no majority yet.
    Behind(Option<Holder>),
}

/// The order in which the nodes receive the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
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
                // The vote first, since it decides the claim.
                biased;
                vote = votes.next() => return vote,
                Some((place, answer)) = self.queries.next() => self.seen.add(place, answer),
            }
        }
    }
}

impl QuorumClaim<'_> {
    pub(super) async fn run_round(
        &self,
        round: Round,
        order: Order,
        call_of: &(impl Fn(&Node, &Claim, Round) -> Call + Send + Sync),
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
                votes.push(vote_of(place, node, call_of(node, self.claim, round)));
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
            votes.push(vote_of(place, node, call_of(node, self.claim, round)));
        }
        self.count_votes(round, until, ballot, votes).await
    }

    /// Counts votes until they decide the claim. A majority that is complete only after `until` is not valid.
    async fn count_votes(
        &self,
        round: Round,
        until: Moment,
        mut ballot: Ballot,
        mut votes: Answers<Result<Vote, ServerFault>>,
    ) -> Result<RoundOutcome, ServerFault> {
        // If claims have split the votes of the nodes that answer, this claim does not wait for silent nodes.
        while let Some((place, vote)) = self
            .nodes
            .next_answer(&ballot, &mut votes, ballot.needed_of_missing(), Duration::MAX)
            .await
        {
            ballot.add(place, vote);
            match ballot.count() {
                VoteCount::Open => (),
                VoteCount::Granted(_) if self.nodes.clock.now() >= until => {
                    // A node that voted may have restarted since, and have the former holder's grant again.
                    self.nodes.withdraw_everywhere(self.claim, round.number);
                    return Err(ServerFault::unavailable("the votes came too late to be counted"));
                }
                VoteCount::Granted(token) => {
                    if ballot.kind == GrantKind::New {
                        return self.confirm(round, token, ballot, votes).await;
                    }
                    // An earlier attempt of this claim was granted, and its token is on a majority. Silent
                    // nodes count, too: without them, the repeated claim could get another token.
                    while ballot.agreed().is_none()
                        && let Some((place, vote)) =
                            self.nodes.next_answer(&ballot, &mut votes, None, Duration::MAX).await
                    {
                        ballot.add(place, vote);
                    }
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

    /// Finds out whether the claim that the first node has granted instead has a majority.
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

    /// Writes `token` back to the nodes with smaller counters, until a majority has it.
    ///
    /// A later claim also needs a majority. At least one of its nodes has this token and gives a larger one.
    /// This does not depend on expiries or clocks.
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
            // A node with a larger counter has granted a larger token and does not count for this one. It
            // still receives the token, since clients query it for the holder's token.
            have_it += usize::from(counted == token);
            match counted.cmp(&token) {
                Ordering::Less => self.raise(place, token, &raises),
                Ordering::Equal => (),
                Ordering::Greater => self.report_token(place, token),
            }
        }
        while have_it < self.nodes.majority() {
            select! {
                // Write-backs first, so that they are sent before any later request.
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
        Ok(RoundOutcome::Decided(Outcome::Granted(ballot.kind, token, ballot.attributes)))
    }

    /// Finds the holder, or that the votes are split, once no majority can grant the claim.
    async fn refused(
        &self,
        round: Round,
        mut ballot: Ballot,
        mut votes: Answers<Result<Vote, ServerFault>>,
    ) -> Result<RoundOutcome, ServerFault> {
        // One or two more answers usually show the holder. If too few nodes took part, waits for further
        // answers too, since the error reports their number.
        let majority = self.nodes.majority();
        let known = |ballot: &Ballot| {
            let no_claim_can = !ballot.holder_may_appear() && ballot.answered() >= majority;
            ballot.holder().is_some() || no_claim_can || ballot.missing() == 0
        };
        self.await_more(&mut ballot, &mut votes, known).await;
        let agreed = |ballot: &Ballot| ballot.holder().is_none() || ballot.holder_is_agreed();
        self.await_more(&mut ballot, &mut votes, agreed).await;
        // A late answer still shows that its node is no longer silent.
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

    /// Brings nodes that answer after the grant to the same counter, so that the next grant takes one
    /// round trip.
    fn raise_late_ones(&self, token: FencingToken, votes: Answers<Result<Vote, ServerFault>>) {
        let (claim, nodes) = (self.claim.clone(), self.nodes.all.clone());
        self.nodes.in_background(votes, move |place, vote| {
            let (claim, node) = (claim.clone(), nodes.get(place).cloned());
            async move {
                if let (Ok(Vote::Granted(counted, ..)), Some(node)) = (vote, node)
                    && counted != token
                {
                    // If this fails, the next heartbeat writes the token.
                    drop(node.raise(&claim, token).await);
                }
            }
        });
    }
}

/// Requests the vote of one node.
fn vote_of(place: usize, node: &Arc<Node>, call: Call) -> Answer<Result<Vote, ServerFault>> {
    let node = Arc::clone(node);
    async move { (place, node.vote(&call).await) }.boxed()
}

/// The time limit for answers that can only show the holder.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);
