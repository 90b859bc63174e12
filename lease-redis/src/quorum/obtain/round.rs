//! One round of a claim: proposes a token to the nodes, counts their votes, and decides.

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::store::Moment;
use lease_core::{FencingToken, Holder};
use tokio::select;
use tokio::time::timeout;

use super::{Ask, QuorumClaim};
use crate::error::ServerFault;
use crate::quorum::nodes::Answers;
use crate::quorum::nodes::asked::Places;
use crate::quorum::nodes::requests::Query;
use crate::quorum::voting::ballot::{Ballot, Vote, VoteCount, too_few};
use crate::quorum::voting::election::{Election, OpenElection, Stage};

pub(super) enum RoundOutcome {
    Granted(FencingToken),
    Held(Option<Holder>),
    /// Only a proposal that is larger than this number can get a majority. The votes are still on the nodes.
    Outbid(OpenElection, u64),
    /// No claim has a majority. The votes are still on the nodes.
    Split(OpenElection),
    /// The node that got the first request has accepted another claim, which has no majority yet.
    Behind(Option<Holder>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The other nodes get the claim if these nodes do not grant it.
    MajorityFirst(Places),
    AllAtOnce,
    /// The other nodes get the claim after the first node has accepted it. So claims do not split the votes.
    OneFirst,
}

/// The queries are sent together with the first request for a vote.
struct HolderQueries {
    queries: Answers<Result<Vote, ServerFault>>,
    seen: Ballot,
}

impl HolderQueries {
    async fn until_vote(&mut self, election: &Election, node: usize) {
        loop {
            select! {
                // Polls the vote first, because it decides the claim.
                biased;
                () = election.until(|ballot| ballot.has_responded(node)) => return,
                Some((place, answer)) = self.queries.next() => self.seen.add(place, answer),
            }
        }
    }
}

impl QuorumClaim<'_> {
    /// Proposes `token`. The claim's proposals from `earlier` on were not granted.
    pub(super) async fn run_round(
        &self,
        order: Order,
        token: FencingToken,
        earlier: Option<FencingToken>,
    ) -> Result<RoundOutcome, ServerFault> {
        let until = self.nodes.clock.now() + self.nodes.vote_validity;
        if let Order::MajorityFirst(first) = order {
            let election = Election::open(self.nodes, self.claim, token, Some(first), earlier);
            self.ask_majority_first(&election, first).await;
            return self.count_votes(election, until).await;
        }
        let election = Election::open(self.nodes, self.claim, token, None, earlier);
        let mut others: Vec<_> = (0..self.nodes.count()).collect();
        if order == Order::OneFirst {
            let mut queries = self.query_holder(election.proposal.waits);
            for (place, node) in self.nodes.in_order_of(&self.claim.key) {
                if node.is_silent() {
                    continue;
                }
                others.retain(|other| *other != place);
                self.ask(&election, [place]);
                let vote = queries.until_vote(&election, place);
                // After the limit, asks the next node. A late vote still counts.
                drop(timeout(node.patience(), vote).await);
                if election.read(Ballot::has_rivals) {
                    return Ok(self.behind(election, queries).await);
                }
                if election.read(Ballot::accepted) > 0 {
                    break;
                }
            }
        }
        self.ask(&election, others);
        self.count_votes(election, until).await
    }

    /// Asks the other nodes if one node refuses the claim or fails, and the answers do not show the holder. Also
    /// asks them if a node takes longer than the hedge delay.
    async fn ask_majority_first(&self, election: &OpenElection, first: Places) {
        self.ask(election, first.iter());
        drop(timeout(self.nodes.hedge_delay(), election.settled()).await);
        let others = election.others_to_ask();
        if !others.is_empty() {
            self.nodes.asked.take(self.claim.nonce);
            self.ask(election, others);
        }
    }

    fn ask(&self, election: &OpenElection, places: impl IntoIterator<Item = usize>) {
        match &self.ask {
            Ask::Obtain => self.nodes.dispatcher.claim(election, places.into_iter()),
            Ask::Adopt(grant) => {
                for place in places {
                    let Some(node) = self.nodes.all.get(place).cloned() else { continue };
                    let (grant, request) = ((*grant).clone(), election.request(place));
                    tokio::spawn(async move {
                        let vote = node.adopt(&grant, request.proposal()).await;
                        request.answer(vote);
                    });
                }
            }
        }
    }

    /// A majority that is complete only after `until` is not valid. A voter may have restarted meanwhile, and
    /// have the former holder's grant again.
    async fn count_votes(
        &self,
        election: OpenElection,
        until: Moment,
    ) -> Result<RoundOutcome, ServerFault> {
        let count = self.count(&election).await;
        let now = self.nodes.clock.now();
        match count {
            VoteCount::Granted if now >= until => {
                election.refuse();
                Err(ServerFault::unavailable("the votes came too late to be counted"))
            }
            VoteCount::Granted if now >= self.deadline => {
                election.refuse();
                Err(ServerFault::unavailable("the key was granted too late to be of use"))
            }
            VoteCount::Granted => {
                election.close(Stage::Granted);
                Ok(RoundOutcome::Granted(election.proposal.token))
            }
            VoteCount::Outbid(number) => {
                election.close(Stage::Over);
                Ok(RoundOutcome::Outbid(election, number))
            }
            VoteCount::Open | VoteCount::Refused => self.refused(election).await,
        }
    }

    async fn count(&self, election: &Election) -> VoteCount {
        loop {
            election.settled().await;
            let (count, responses, silence) = election.read(|ballot| {
                let silence = ballot.needed_of_missing();
                let silence = silence.map(|needed| self.nodes.silence_of(ballot, needed));
                (ballot.count(), ballot.responses(), silence)
            });
            // Claims have split the votes of the nodes that answer.
            let (VoteCount::Open, Some(silence)) = (&count, silence) else { return count };
            let next = election.until(|ballot| ballot.responses() > responses);
            if timeout(silence, next).await.is_err() {
                return election.read(Ballot::count_without_missing);
            }
        }
    }

    fn query_holder(&self, waits: bool) -> HolderQueries {
        let query = if waits { Query::OfWaiter } else { Query::OfReader };
        let queries = self.nodes.send_all(|node| {
            let key = self.claim.key.clone();
            async move { node.holder_here(&key, query).await }
        });
        HolderQueries { queries, seen: Ballot::new(self.nodes.count()) }
    }

    /// Finds out whether the claim that the first node has accepted has a majority.
    async fn behind(&self, election: OpenElection, queries: HolderQueries) -> RoundOutcome {
        election.refuse();
        let HolderQueries { mut queries, mut seen } = queries;
        let known = |seen: &Ballot| match seen.holder() {
            Some(_) => seen.holder_is_agreed(),
            None => !seen.holder_may_appear(),
        };
        while !known(&seen) {
            let next = self.nodes.next_answer(&seen, &mut queries, Some(1), PATIENCE).await;
            let Some((place, answer)) = next else { break };
            seen.add(place, answer);
        }
        self.nodes.in_background(queries, |_, _| async {});
        match seen.holder() {
            Some(holder) => {
                self.note_mark(&election);
                RoundOutcome::Held(Some(holder))
            }
            None => RoundOutcome::Behind(election.read(Ballot::nearest)),
        }
    }

    /// Called when no majority can accept the claim.
    async fn refused(&self, election: OpenElection) -> Result<RoundOutcome, ServerFault> {
        // Other nodes may have been asked only now, and take a round trip.
        let majority = self.nodes.majority();
        let enough = |ballot: &Ballot| ballot.answered() >= majority;
        self.await_more(&election, Duration::MAX, enough).await;
        // A few more answers usually show the holder. If too few nodes took part, the error needs all
        // answers.
        let known = |ballot: &Ballot| {
            let no_claim_can = !ballot.holder_may_appear() && ballot.answered() >= majority;
            ballot.holder().is_some() || no_claim_can || ballot.missing() == 0
        };
        self.await_more(&election, PATIENCE, known).await;
        let agreed = |ballot: &Ballot| ballot.holder().is_none() || ballot.holder_is_agreed();
        self.await_more(&election, PATIENCE, agreed).await;
        let (holder, is_free, answered) =
            election.read(|ballot| (ballot.holder(), ballot.is_free(), ballot.answered()));
        if holder.is_some() || is_free {
            self.note_mark(&election);
            election.refuse();
            return Ok(RoundOutcome::Held(holder));
        }
        if answered < majority {
            // Keeps the votes, because the caller may repeat the claim with the same nonce.
            election.close(Stage::Over);
            return Err(election
                .read(|ballot| too_few(ballot.answered(), self.nodes.count(), &ballot.faults)));
        }
        Ok(RoundOutcome::Split(election))
    }

    /// Without a mark on all nodes, the watch marks them.
    fn note_mark(&self, election: &Election) {
        if election.proposal.waits && election.read(Ballot::has_asked_all) {
            self.nodes.watched.note_mark(&self.nodes.keys.channel(&self.claim.key));
        }
    }

    /// Does not wait for silent nodes, and waits for each answer for at most `limit`.
    async fn await_more(
        &self,
        election: &Election,
        limit: Duration,
        enough: impl Fn(&Ballot) -> bool + Sync,
    ) {
        loop {
            let (is_enough, responses, silence) = election.read(|ballot| {
                let is_enough = enough(ballot) || ballot.missing() == 0;
                (is_enough, ballot.responses(), self.nodes.silence_of(ballot, 1))
            });
            if is_enough {
                return;
            }
            let next = election.until(|ballot| ballot.responses() > responses);
            if timeout(silence.min(limit), next).await.is_err() {
                return;
            }
        }
    }
}

/// The time limit for answers that can show the holder, but cannot change the claim's outcome.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);
