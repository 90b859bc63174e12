//! How a claim is granted by a majority: ask all, count, write the token back.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lease_core::{Attributes, Claim, FencingToken, Holder, Moment};
use tokio::select;
use tokio::time::{sleep, timeout};

use crate::ballot::{Ballot, Count};
use crate::error::Fault;
use crate::lock::{Asked, Round, Vote};
use crate::node::Node;
use crate::nodes::{Answer, Answers, Nodes};
use crate::quorum_config::too_few;
use crate::script::Call;

/// One claim, put to the vote.
pub(crate) struct Election<'a> {
    nodes: &'a Nodes,
    claim: &'a Claim,
    /// Counted from before the first request: a node's ttl starts no earlier.
    deadline: Moment,
    first_round: u64,
}

pub(crate) enum Outcome {
    Granted(FencingToken, Attributes),
    /// `None` where nobody has it, nor can it be had.
    Held(Option<Holder>),
}

/// What one round came to.
enum Came {
    Over(Outcome),
    /// Several claims share the nodes, and none has a majority.
    Split(Ballot),
    /// The node that is asked first has granted another claim, which has no majority yet.
    Behind(Option<Holder>),
}

/// In which order the nodes are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    AllAtOnce,
    /// One node first, and the others once that node has granted the claim. So one claim at a time asks
    /// the others, and votes are not split.
    OneFirst,
}

/// What the nodes say about the key's holder, asked beside the first vote.
struct Looks {
    looks: Answers<Result<Vote, Fault>>,
    seen: Ballot,
}

impl Looks {
    async fn until_vote(
        &mut self,
        votes: &mut Answers<Result<Vote, Fault>>,
    ) -> Option<(usize, Result<Vote, Fault>)> {
        loop {
            select! {
                // The vote first: it decides.
                biased;
                vote = votes.next() => return vote,
                Some((place, look)) = self.looks.next() => self.seen.add(place, look),
            }
        }
    }
}

impl<'a> Election<'a> {
    pub(crate) fn new(nodes: &'a Nodes, claim: &'a Claim) -> Self {
        let first_round = nodes.first_of(ROUNDS.into());
        Self { nodes, claim, deadline: nodes.deadline(claim.ttl), first_round }
    }

    /// Asks until a claim has a majority.
    ///
    /// Claims that arrive at the same moment may split the votes. The claim that goes first keeps its
    /// votes, the others withdraw, and all ask again.
    pub(crate) async fn hold(
        &self,
        call_of: impl Fn(&Node, Round) -> Call + Send + Sync,
    ) -> Result<Outcome, Fault> {
        let mut nearest = None;
        let mut order = self.order();
        for number in 0..ROUNDS {
            let (round, asked) = (self.round(number), self.nodes.clock.now());
            match self.ask(round, order, &call_of).await? {
                Came::Over(outcome) => {
                    if let Outcome::Held(holder) = &outcome {
                        self.expect_contenders(holder.as_ref());
                    }
                    return Ok(outcome);
                }
                Came::Split(ballot) => {
                    nearest = ballot.nearest();
                    self.expect_contenders(None);
                    if ballot.goes_first(&self.claim.nonce.to_string()) {
                        order = Order::AllAtOnce;
                        // At once, to be the next claim on the nodes from which others withdraw.
                        if let Some(number) = number.checked_sub(ROUNDS_AT_ONCE) {
                            sleep(self.pause(number)).await;
                        }
                    } else {
                        order = self.order();
                        self.withdraw(round, &ballot);
                        // Long enough for the claim that goes first to be granted before.
                        let took = self.nodes.clock.now().since(asked);
                        sleep(took * 2 + self.pause(number)).await;
                    }
                }
                Came::Behind(ahead) => {
                    nearest = ahead;
                    self.expect_contenders(None);
                    // Long enough for the claim ahead to be granted: an earlier request would be refused
                    // again.
                    let took = self.nodes.clock.now().since(asked);
                    sleep(took + self.pause(number)).await;
                    // The client of the claim ahead may have crashed.
                    if number + 1 >= ROUNDS_IN_ORDER {
                        order = Order::AllAtOnce;
                    }
                }
            }
        }
        self.nodes.take_back(self.claim, self.round(ROUNDS - 1).number);
        Ok(Outcome::Held(nearest))
    }

    /// Contenders ask one node first while a node is silent: then fewer nodes answer, and votes are
    /// split more often. While all nodes answer, a split now and then costs less than the second round
    /// trip of every claim.
    fn order(&self) -> Order {
        let nodes = self.nodes;
        if nodes.all.iter().any(|node| node.is_silent())
            && nodes.contention.contains(&self.claim.key, nodes.clock.now())
        {
            Order::OneFirst
        } else {
            Order::AllAtOnce
        }
    }

    /// A claim that was refused may be made again when the key is free.
    fn expect_contenders(&self, holder: Option<&Holder>) {
        let now = self.nodes.clock.now();
        let held_for = holder.and_then(|holder| holder.expires_in).unwrap_or_default();
        self.nodes.contention.add(&self.claim.key, now + held_for + CONTENDED_FOR, now);
    }

    /// Asks once: what is handed over was handed to one.
    pub(crate) async fn hold_once(
        &self,
        call_of: impl Fn(&Node, Round) -> Call + Send + Sync,
    ) -> Result<Outcome, Fault> {
        let round = self.round(0);
        match self.ask(round, Order::AllAtOnce, &call_of).await? {
            Came::Over(outcome) => Ok(outcome),
            Came::Split(ballot) => {
                self.nodes.take_back(self.claim, round.number);
                Ok(Outcome::Held(ballot.nearest()))
            }
            Came::Behind(holder) => Ok(Outcome::Held(holder)),
        }
    }

    fn round(&self, number: u32) -> Round {
        Round {
            number: self.first_round + u64::from(number),
            least_uptime: self.nodes.least_uptime,
            proposed_time: self.nodes.common_time().unwrap_or(0),
        }
    }

    async fn ask(
        &self,
        round: Round,
        order: Order,
        call_of: &(impl Fn(&Node, Round) -> Call + Send + Sync),
    ) -> Result<Came, Fault> {
        let until = self.nodes.clock.now() + self.nodes.votes_last;
        let mut ballot = Ballot::new(self.nodes.count());
        let mut votes = Answers::new();
        let mut others: Vec<_> = self.nodes.all.iter().enumerate().collect();
        if order == Order::OneFirst {
            let (looks, seen) = (self.look(), Ballot::new(self.nodes.count()));
            let mut looks = Looks { looks, seen };
            for (place, node) in self.nodes.in_order_of(&self.claim.key) {
                if node.is_silent() {
                    continue;
                }
                others.retain(|(other, _)| *other != place);
                votes.push(vote_of(place, node, call_of(node, round)));
                let answer = timeout(node.patience(), looks.until_vote(&mut votes)).await;
                if let Ok(Some((place, vote))) = answer {
                    ballot.add(place, self.nodes.named(place, vote));
                }
                if !ballot.rivals.is_empty() {
                    return Ok(self.behind(round, &ballot, votes, looks).await);
                }
                if !ballot.granted.is_empty() {
                    break;
                }
            }
        }
        for (place, node) in others {
            votes.push(vote_of(place, node, call_of(node, round)));
        }
        // Contenders that split the nodes which answer do not wait for nodes that are silent.
        while let Some((place, vote)) = self
            .nodes
            .next_answer(&ballot, &mut votes, ballot.needed_of_missing(), Duration::MAX)
            .await
        {
            ballot.add(place, self.nodes.named(place, vote));
            match ballot.count() {
                Count::Open => (),
                Count::Granted(_) if self.nodes.clock.now() >= until => {
                    // A node that voted may have restarted since, and helped the former holder.
                    self.nodes.take_back(self.claim, round.number);
                    return Err(Fault::unavailable("the votes came too late to be counted"));
                }
                Count::Granted(token) => {
                    if ballot.asked == Asked::First {
                        return self.confirm(round, token, ballot, votes).await;
                    }
                    // Granted before, and the reply was lost: the token of then is the one that
                    // a majority has.
                    let agreed = |ballot: &Ballot| ballot.agreed().is_some();
                    self.hear_more(&mut ballot, &mut votes, agreed).await;
                    let token = ballot.agreed().unwrap_or(token);
                    return self.confirm(round, token, ballot, votes).await;
                }
                Count::Refused => break,
            }
        }
        self.refused(round, ballot, votes).await
    }

    /// Asks all nodes which claim they have granted.
    fn look(&self) -> Answers<Result<Vote, Fault>> {
        self.nodes.ask(|node| {
            let key = self.claim.key.clone();
            async move { Ok(node.holder(&key).await?.map_or(Vote::Gone, Vote::Held)) }
        })
    }

    /// The first node has granted another claim. Finds out whether that claim has a majority.
    async fn behind(
        &self,
        round: Round,
        ballot: &Ballot,
        votes: Answers<Result<Vote, Fault>>,
        looks: Looks,
    ) -> Came {
        if !votes.is_empty() {
            // A node that has not answered may yet grant the claim.
            self.nodes.take_back(self.claim, round.number);
            self.nodes.in_background(votes, |_, _| async {});
        }
        let Looks { mut looks, mut seen } = looks;
        let known = |seen: &Ballot| match seen.holder() {
            Some(_) => seen.holder_is_agreed(),
            None => !seen.holder_may_appear(),
        };
        self.hear_more(&mut seen, &mut looks, known).await;
        self.nodes.in_background(looks, |_, _| async {});
        match seen.holder() {
            Some(holder) => Came::Over(Outcome::Held(Some(holder))),
            None => Came::Behind(ballot.nearest()),
        }
    }

    /// Hears the nodes that answer in a moment, until `enough` is known. Does not wait for nodes that
    /// are silent.
    async fn hear_more(
        &self,
        ballot: &mut Ballot,
        votes: &mut Answers<Result<Vote, Fault>>,
        enough: impl Fn(&Ballot) -> bool,
    ) {
        while !enough(ballot) {
            let Some((place, vote)) =
                self.nodes.next_answer(ballot, votes, Some(1), PATIENCE).await
            else {
                return;
            };
            ballot.add(place, self.nodes.named(place, vote));
        }
    }

    /// Writes `token` back to the nodes that counted to less, until a majority has it.
    ///
    /// Whoever is granted the key later asks a majority, too, and so at least one node that has
    /// this token already: it will count to more. That holds whenever leases run out, and
    /// whatever the clocks say.
    async fn confirm(
        &self,
        round: Round,
        token: FencingToken,
        ballot: Ballot,
        mut votes: Answers<Result<Vote, Fault>>,
    ) -> Result<Came, Fault> {
        let mut faults = ballot.faults;
        let mut have_it = 0;
        let mut raises = Answers::new();
        for (place, counted) in ballot.granted {
            // One that counted further has seen a larger token than this one may be: it does not
            // stand for it. It is told, since others ask it for the holder's token.
            have_it += usize::from(counted == token);
            match counted.cmp(&token) {
                Ordering::Less => self.raise(place, token, &raises),
                Ordering::Equal => (),
                Ordering::Greater => self.tell(place, token),
            }
        }
        while have_it < self.nodes.majority() {
            select! {
                // Writing back comes first, so that it is sent before anything that follows.
                biased;
                Some((_, raised)) = raises.next() => match raised {
                    Ok(true) => have_it += 1,
                    Ok(false) => faults.push(Fault::unavailable("a node freed the key too soon")),
                    Err(fault) => faults.push(fault),
                },
                Some((place, vote)) = votes.next() => match self.nodes.named(place, vote) {
                    Ok(Vote::Granted(counted, ..)) => {
                        have_it += usize::from(counted == token);
                        match counted.cmp(&token) {
                            Ordering::Less => self.raise(place, token, &raises),
                            Ordering::Equal => (),
                            Ordering::Greater => self.tell(place, token),
                        }
                    }
                    Ok(_) => (),
                    Err(fault) => faults.push(fault),
                },
                else => return Err(too_few(have_it, self.nodes.count(), &faults)),
            }
        }
        if self.nodes.clock.now() >= self.deadline {
            self.nodes.take_back(self.claim, round.number);
            return Err(Fault::unavailable("the key was granted too late to be of use"));
        }
        self.nodes.in_background(raises, |_, _| async {});
        self.raise_late_ones(token, votes);
        Ok(Came::Over(Outcome::Granted(token, ballot.attributes)))
    }

    /// No majority is to be had. Says who has it, or that the votes are split.
    async fn refused(
        &self,
        round: Round,
        mut ballot: Ballot,
        mut votes: Answers<Result<Vote, Fault>>,
    ) -> Result<Came, Fault> {
        // Whoever has it is usually known after another answer or two. Where too few took part,
        // those that would have are heard, too: the error says how many there are.
        let majority = self.nodes.majority();
        let known = |ballot: &Ballot| {
            let nobody_can = !ballot.holder_may_appear() && ballot.answered() >= majority;
            ballot.holder().is_some() || nobody_can || ballot.missing() == 0
        };
        self.hear_more(&mut ballot, &mut votes, known).await;
        let agreed = |ballot: &Ballot| ballot.holder().is_none() || ballot.holder_is_agreed();
        self.hear_more(&mut ballot, &mut votes, agreed).await;
        // An answer that comes late still shows that its node is not silent any more.
        self.nodes.in_background(votes, |_, _| async {});
        if let Some(holder) = ballot.holder() {
            if !ballot.granted.is_empty() || ballot.missing() > 0 {
                self.nodes.take_back(self.claim, round.number);
            }
            return Ok(Came::Over(Outcome::Held(Some(holder))));
        }
        if ballot.nobody_has_it() {
            self.nodes.take_back(self.claim, round.number);
            return Ok(Came::Over(Outcome::Held(None)));
        }
        if ballot.answered() < self.nodes.majority() {
            // What was granted is kept: whoever asks again, with the same nonce, may need it.
            return Err(too_few(ballot.answered(), self.nodes.count(), &ballot.faults));
        }
        Ok(Came::Split(ballot))
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
            self.nodes.take_back(self.claim, round.number);
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

    fn raise(&self, place: usize, token: FencingToken, raises: &Answers<Result<bool, Fault>>) {
        let claim = self.claim.clone();
        if let Some(node) = self.nodes.all.get(place).cloned() {
            raises.push(Box::pin(async move { (place, node.raise(&claim, token).await) }));
        }
    }

    fn tell(&self, place: usize, token: FencingToken) {
        let told = Answers::new();
        self.raise(place, token, &told);
        self.nodes.in_background(told, |_, _| async {});
    }

    /// Brings the nodes that answer after the grant to the same count, so that the next grant
    /// takes one round trip.
    fn raise_late_ones(&self, token: FencingToken, votes: Answers<Result<Vote, Fault>>) {
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

/// All together last for 100 ms on average.
const ROUNDS: u32 = 8;

/// Asks one node for its vote.
fn vote_of(place: usize, node: &Arc<Node>, call: Call) -> Answer<Result<Vote, Fault>> {
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

/// How long a node's answer is waited for that can only say who the holder is.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);
