//! What may happen next in a state: one step of the protocol, or of what goes wrong around it.

use std::cmp::Ordering;
use std::fmt;

use crate::setup::{Clocks, Rule, Setup};
use crate::state::{Beat, Claim, Freed, Link, Node, Phase, State, Vote, bit, name};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Claim(usize, Deed),
    Arrives(Message, usize, usize),
    RunsOut(usize),
    Restarts(usize),
}

/// What a claim does by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    Asks,
    AsksAgain,
    Counts(u8),
    IsGranted,
    Withdraws,
    Beats,
    Releases,
    Ends,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    Claim,
    EarlierClaim,
    WriteBack,
    EarlierWriteBack,
    Heartbeat,
    PutBack,
    Withdrawal,
    Release,
}

/// What must never happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    OneTokenTwice,
    TokensOutOfOrder,
    HeldByTwo,
    ExtendedAfterASuccessor,
    TakenAfterItsRelease,
}

impl Violation {
    pub(crate) const ALL: [Self; 5] = [
        Self::OneTokenTwice,
        Self::TokensOutOfOrder,
        Self::HeldByTwo,
        Self::ExtendedAfterASuccessor,
        Self::TakenAfterItsRelease,
    ];
}

/// A step, and what it led to.
#[derive(Debug)]
pub(crate) struct Taken<const N: usize> {
    pub(crate) step: Step,
    pub(crate) state: State<N>,
    pub(crate) violation: Option<Violation>,
}

/// Fills `taken` with all that may happen next.
pub(crate) fn take_all<const N: usize>(
    setup: &Setup<N>,
    state: State<N>,
    taken: &mut Vec<Taken<N>>,
) {
    taken.clear();
    let mut steps = Steps { setup, state, taken };
    for node in 0..N {
        steps.run_out(node);
        steps.restart(node);
    }
    for place in 0..setup.claims {
        steps.act(place);
        for node in 0..N {
            steps.deliver(place, node);
        }
    }
}

struct Steps<'a, const N: usize> {
    setup: &'a Setup<N>,
    state: State<N>,
    taken: &'a mut Vec<Taken<N>>,
}

impl<const N: usize> Steps<'_, N> {
    fn then(&mut self, step: Step, change: impl FnOnce(&mut State<N>)) {
        self.then_in_spite_of(None, step, change);
    }

    fn then_in_spite_of(
        &mut self,
        mut violation: Option<Violation>,
        step: Step,
        change: impl FnOnce(&mut State<N>),
    ) {
        let mut state = self.state;
        change(&mut state);
        // Who asks once is granted as soon as may be: the earlier it is, the more is forbidden
        // to others. Who may also withdraw instead is granted by a step of its own.
        for place in self.setup.lasting..self.setup.claims {
            if is_due(self.setup, &state, place) {
                let broken = grant(self.setup, &mut state, place);
                violation = violation.or(broken);
            }
        }
        state.forget(self.setup);
        self.taken.push(Taken { step, state, violation });
    }

    fn run_out(&mut self, node: usize) {
        let there = &self.state.nodes[node];
        let Some(place) = usize::from(there.holder).checked_sub(1) else { return };
        let may_run_out = match self.setup.clocks {
            Clocks::Wrong => true,
            // A heartbeat that a majority heard prolongs it there, and not where it was lost.
            Clocks::Right => {
                !self.state.claims[place].is_live()
                    || self.is_extended(place) && there.links[place].beat != Beat::Extended
            }
        };
        if may_run_out {
            self.then(Step::RunsOut(node), |state| state.nodes[node].holder = 0);
        }
    }

    fn restart(&mut self, node: usize) {
        if self.state.restarts == 0 {
            return;
        }
        let time = self.state.largest_counted();
        let mut awaited = 0;
        if self.setup.clocks == Clocks::Right {
            for (place, claim) in self.state.claims.iter().enumerate() {
                awaited |= if claim.is_live() { bit(place) } else { 0 };
            }
        }
        self.then(Step::Restarts(node), |state| {
            let links = state.nodes[node].links;
            state.nodes[node] = Node { restarted: true, awaited, links, ..Node::default() };
            state.restarts -= 1;
            state.time = time;
        });
    }

    fn act(&mut self, place: usize) {
        let claim = self.state.claims[place];
        let lasting = place < self.setup.lasting;
        let does = |deed| Step::Claim(place, deed);
        match claim.phase {
            Phase::Idle => {
                let floor = self.state.largest_granted();
                self.then(does(Deed::Asks), |state| {
                    (state.claims[place].phase, state.claims[place].floor) = (Phase::Asking, floor);
                    for node in &mut state.nodes {
                        node.links[place].vote = Vote::Asked;
                    }
                });
            }
            Phase::Asking => self.count_votes(place),
            Phase::WritingBack if is_due(self.setup, &self.state, place) => {
                let mut granted = self.state;
                let violation = grant(self.setup, &mut granted, place);
                self.then_in_spite_of(violation, does(Deed::IsGranted), |state| *state = granted);
            }
            Phase::Granted if lasting => {
                if claim.may_beat {
                    self.beat(place);
                }
                self.then(does(Deed::Releases), |state| {
                    state.claims[place].phase = Phase::Over;
                    for node in &mut state.nodes {
                        node.links[place].freed = Freed::Releasing;
                    }
                });
            }
            _ => (),
        }
        let asks = matches!(claim.phase, Phase::Asking | Phase::WritingBack);
        if lasting && asks {
            self.then(does(Deed::Withdraws), |state| {
                state.claims[place].phase = Phase::GivenUp;
                for node in &mut state.nodes {
                    node.links[place].freed = Freed::Withdrawing;
                }
            });
        }
        if claim.may_ask_again && (asks || claim.phase == Phase::GivenUp) {
            self.ask_again(place);
        }
        if claim.is_live() && self.setup.clocks == Clocks::Right {
            self.then(does(Deed::Ends), |state| {
                let claim = &mut state.claims[place];
                claim.phase = if asks { Phase::GivenUp } else { Phase::Over };
                claim.may_ask_again = false;
            });
        }
    }

    /// A round after another, or a lessee that has heard nothing: the same nonce, and the votes
    /// are counted anew.
    fn ask_again(&mut self, place: usize) {
        self.then(Step::Claim(place, Deed::AsksAgain), |state| {
            let claim = &mut state.claims[place];
            for node in &mut state.nodes {
                let link = &mut node.links[place];
                link.doubled |= link.vote == Vote::Asked;
                if link.vote == Vote::Raising {
                    link.stale = claim.token;
                }
                link.vote = Vote::Asked;
            }
            (claim.phase, claim.token, claim.may_ask_again) = (Phase::Asking, 0, false);
        });
    }

    /// The largest count is the token; who counted to less is told.
    ///
    /// A majority suffices, whichever is heard first: so each count is tried that is the largest
    /// of some majority. A vote that is larger still counts as one that is heard later.
    fn count_votes(&mut self, place: usize) {
        let votes = self.state.nodes.map(|node| match node.links[place].vote {
            Vote::Counted(counted) => counted,
            _ => 0,
        });
        for (node, token) in votes.into_iter().enumerate() {
            let up_to_it = votes.iter().filter(|vote| (1..=token).contains(*vote)).count();
            if token == 0 || up_to_it < self.setup.quorum || votes[..node].contains(&token) {
                continue;
            }
            let setup = self.setup;
            self.then(Step::Claim(place, Deed::Counts(token)), |state| {
                let claim = &mut state.claims[place];
                (claim.phase, claim.token) = (Phase::WritingBack, token);
                for node in &mut state.nodes {
                    if let Vote::Counted(counted) = node.links[place].vote {
                        node.links[place].vote = written_back(setup, counted, token);
                    }
                }
            });
        }
    }

    fn beat(&mut self, place: usize) {
        let followed = self.state.largest_granted() > self.state.claims[place].token;
        let renews = self.state.nodes.iter().any(|node| node.awaited & bit(place) != 0);
        self.then(Step::Claim(place, Deed::Beats), |state| {
            let claim = &mut state.claims[place];
            (claim.may_beat, claim.followed, claim.renews) = (false, followed, renews);
            for node in &mut state.nodes {
                node.links[place].beat = Beat::Sent;
            }
        });
    }

    /// Whatever of `place` is on its way to `node` may arrive now.
    ///
    /// All answers are heard. One that is lost makes for fewer grants, and so for less that can
    /// be wrong; and a claim that was counted without it is among those that are tried.
    fn deliver(&mut self, place: usize, node: usize) {
        let claim = self.state.claims[place];
        let link = self.state.nodes[node].links[place];
        match link.vote {
            Vote::Asked => self.deliver_claim(Message::Claim, place, node),
            Vote::Raising => self.deliver_write_back(place, node),
            Vote::Nothing | Vote::Counted(_) | Vote::Stands => (),
        }
        if link.doubled {
            self.deliver_claim(Message::EarlierClaim, place, node);
        }
        if link.stale != 0 {
            let arrives = Step::Arrives(Message::EarlierWriteBack, place, node);
            self.then(arrives, |state| {
                write_back(state, place, node, link.stale);
                state.nodes[node].links[place].stale = 0;
            });
        }
        if link.beat == Beat::Sent {
            self.deliver_heartbeat(place, node);
        }
        // It may be sent at any time since the grant, so nobody need know when it was.
        if place < self.setup.lasting && claim.was_granted() && self.state.put_backs > 0 {
            self.deliver_put_back(place, node);
        }
        match link.freed {
            Freed::Withdrawing => self.deliver_withdrawal(place, node),
            Freed::Releasing => self.deliver_release(place, node),
            Freed::Nothing | Freed::Released => (),
        }
    }

    fn deliver_claim(&mut self, message: Message, place: usize, node: usize) {
        let (setup, name) = (self.setup, name(place));
        let there = self.state.nodes[node];
        let quarantined = there.awaited != 0 && !setup.leaves_out(Rule::Quarantine);
        let refused =
            there.holder != 0 || there.granted == name || there.last == name || quarantined;
        let again = there.holder == name;
        let violation = if again || refused { None } else { self.taken_after_release(place, node) };
        let mut time = self.state.largest_counted() + 1;
        if setup.leaves_out(Rule::TimeAfterRestart) {
            time = 0;
        }
        self.then_in_spite_of(violation, Step::Arrives(message, place, node), |state| {
            let there = &mut state.nodes[node];
            let link = &mut there.links[place];
            link.overtake_withdrawal(setup);
            match message {
                Message::EarlierClaim => link.doubled = false,
                _ => link.vote = Vote::Nothing,
            }
            if !again && refused {
                return;
            }
            if !again {
                there.counter += 1;
                if there.restarted {
                    there.counter = there.counter.max(time);
                }
                there.restarted = false;
                (there.holder, there.granted, there.held) = (name, name, there.counter);
            }
            let claim = &state.claims[place];
            if matches!(message, Message::Claim) {
                there.links[place].vote = match claim.phase {
                    Phase::Asking => Vote::Counted(there.held),
                    Phase::WritingBack => written_back(setup, there.held, claim.token),
                    Phase::Granted | Phase::Over if there.held < claim.token => Vote::Raising,
                    _ => Vote::Nothing,
                };
            }
        });
    }

    fn deliver_write_back(&mut self, place: usize, node: usize) {
        let claim = self.state.claims[place];
        let unguarded = self.setup.leaves_out(Rule::GuardOfWriteBack);
        self.then(Step::Arrives(Message::WriteBack, place, node), |state| {
            let written = write_back(state, place, node, claim.token);
            let there = &mut state.nodes[node];
            if unguarded {
                there.counter = there.counter.max(claim.token);
            }
            let stands = claim.phase == Phase::WritingBack && (written || unguarded);
            there.links[place].vote = if stands { Vote::Stands } else { Vote::Nothing };
        });
    }

    fn deliver_heartbeat(&mut self, place: usize, node: usize) {
        let setup = self.setup;
        let there = &self.state.nodes[node];
        // It comes a period after the lease was put back there. Claims that had a vote of the
        // node's before it restarted are decided by then.
        let undecided = |(other, claim): (usize, &Claim)| {
            there.awaited & bit(other) != 0
                && matches!(claim.phase, Phase::Asking | Phase::WritingBack)
        };
        if self.state.claims.iter().enumerate().any(undecided)
            && !setup.leaves_out(Rule::DecidedWithinAPeriod)
        {
            return;
        }
        let holds = there.holder == name(place);
        let violation = if holds { self.extended_too_late(place) } else { None };
        self.then_in_spite_of(violation, Step::Arrives(Message::Heartbeat, place, node), |state| {
            let link = &mut state.nodes[node].links[place];
            link.beat = Beat::Nothing;
            link.overtake_withdrawal(setup);
            if holds {
                extend(setup, state, place, node);
            }
        });
    }

    fn deliver_put_back(&mut self, place: usize, node: usize) {
        let setup = self.setup;
        let (claim, there) = (self.state.claims[place], self.state.nodes[node]);
        let followed = there.counter > claim.token && there.granted != name(place);
        let released = there.last == name(place);
        let refused = there.holder != 0
            || (followed && !self.setup.leaves_out(Rule::NotPutBackAfterAnother))
            || (released && !self.setup.leaves_out(Rule::NotPutBackAfterRelease));
        if refused {
            return;
        }
        let counts = self.setup.leaves_out(Rule::PutBackDoesNotCount)
            && self.state.nodes.iter().any(|node| node.links[place].beat != Beat::Nothing);
        let too_late = if counts { self.extended_too_late(place) } else { None };
        let violation = self.taken_after_release(place, node).or(too_late);
        self.then_in_spite_of(violation, Step::Arrives(Message::PutBack, place, node), |state| {
            let there = &mut state.nodes[node];
            (there.holder, there.granted, there.held) = (name(place), name(place), claim.token);
            there.counter = there.counter.max(claim.token);
            state.put_backs -= 1;
            if counts {
                extend(setup, state, place, node);
            }
        });
    }

    fn deliver_withdrawal(&mut self, place: usize, node: usize) {
        self.then(Step::Arrives(Message::Withdrawal, place, node), |state| {
            let there = &mut state.nodes[node];
            if there.holder == name(place) {
                (there.holder, there.granted) = (0, 0);
            }
            there.links[place].freed = Freed::Nothing;
        });
    }

    fn deliver_release(&mut self, place: usize, node: usize) {
        self.then(Step::Arrives(Message::Release, place, node), |state| {
            let there = &mut state.nodes[node];
            if there.holder == name(place) || there.holder == 0 {
                (there.holder, there.last) = (0, name(place));
                there.links[place].freed = Freed::Released;
            } else {
                there.links[place].freed = Freed::Nothing;
            }
        });
    }

    fn is_extended(&self, place: usize) -> bool {
        self.state.count(place, |link| link.beat == Beat::Extended) >= self.setup.quorum
    }

    /// Whether one more node that extends it is one too many.
    fn extended_too_late(&self, place: usize) -> Option<Violation> {
        let extended = self.state.count(place, |link| link.beat == Beat::Extended) + 1;
        let followed = self.state.claims[place].followed;
        (followed && extended >= self.setup.quorum).then_some(Violation::ExtendedAfterASuccessor)
    }

    /// Whether it is taken although the node remembered its release. A later release may have
    /// taken the place of that one.
    fn taken_after_release(&self, place: usize, node: usize) -> Option<Violation> {
        let there = &self.state.nodes[node];
        let remembered = there.links[place].freed == Freed::Released && there.last == name(place);
        remembered.then_some(Violation::TakenAfterItsRelease)
    }
}

impl Link {
    /// What a claim sends to a node comes after its withdrawal there, or that was lost.
    fn overtake_withdrawal<const N: usize>(&mut self, setup: &Setup<N>) {
        if self.freed == Freed::Withdrawing && !setup.leaves_out(Rule::WithdrawalComesFirst) {
            self.freed = Freed::Nothing;
        }
    }
}

fn is_due<const N: usize>(setup: &Setup<N>, state: &State<N>, place: usize) -> bool {
    let have_it = state.count(place, |link| link.vote == Vote::Stands);
    state.claims[place].phase == Phase::WritingBack
        && (have_it >= setup.quorum || setup.leaves_out(Rule::WriteBack))
}

fn grant<const N: usize>(
    setup: &Setup<N>,
    state: &mut State<N>,
    place: usize,
) -> Option<Violation> {
    let claim = state.claims[place];
    let mut violation = None;
    if state.claims.iter().any(|other| other.was_granted() && other.token == claim.token) {
        violation = Some(Violation::OneTokenTwice);
    } else if claim.token <= claim.floor {
        violation = Some(Violation::TokensOutOfOrder);
    } else if setup.clocks == Clocks::Right
        && state.claims.iter().any(|other| other.phase == Phase::Granted)
    {
        violation = Some(Violation::HeldByTwo);
    }
    state.claims[place].phase = Phase::Granted;
    state.claims[place].may_ask_again = false;
    violation
}

/// What becomes of a vote, once the token is known.
fn written_back<const N: usize>(setup: &Setup<N>, counted: u8, token: u8) -> Vote {
    match counted.cmp(&token) {
        Ordering::Less => Vote::Raising,
        Ordering::Equal => Vote::Stands,
        Ordering::Greater if setup.leaves_out(Rule::LargerVotesDoNotCount) => Vote::Stands,
        Ordering::Greater => Vote::Nothing,
    }
}

/// Whether the token is there afterwards, and with it the key.
fn write_back<const N: usize>(state: &mut State<N>, place: usize, node: usize, token: u8) -> bool {
    let there = &mut state.nodes[node];
    if there.holder != name(place) || there.held > token {
        return false;
    }
    there.held = token;
    there.counter = there.counter.max(token);
    true
}

/// A node extends a lease. Once a majority has, the lease lasts from after the restarts that its
/// heartbeat followed: these nodes need not wait for its end.
fn extend<const N: usize>(setup: &Setup<N>, state: &mut State<N>, place: usize, node: usize) {
    let claim = state.claims[place];
    let there = &mut state.nodes[node];
    there.counter = there.counter.max(claim.token);
    there.links[place].beat = Beat::Extended;
    let extended = state.count(place, |link| link.beat == Beat::Extended);
    if claim.renews && extended >= setup.quorum {
        for node in &mut state.nodes {
            node.awaited &= !bit(place);
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |place: usize| ["A", "B", "C"][place];
        match *self {
            Self::Claim(place, deed) => write!(f, "{} {deed}", name(place)),
            Self::Arrives(message, place, node) => {
                write!(f, "{}'s {message} reaches node {}", name(place), node + 1)
            }
            Self::RunsOut(node) => write!(f, "node {} lets its lease run out", node + 1),
            Self::Restarts(node) => write!(f, "node {} restarts, and is empty", node + 1),
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asks => f.write_str("asks all nodes"),
            Self::AsksAgain => f.write_str("asks all nodes again"),
            Self::Counts(token) => write!(f, "counts its votes, and writes {token} back"),
            Self::IsGranted => f.write_str("is granted"),
            Self::Withdraws => f.write_str("withdraws"),
            Self::Beats => f.write_str("sends heartbeats"),
            Self::Releases => f.write_str("is released"),
            Self::Ends => f.write_str("comes to its deadline"),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Claim => "claim",
            Self::EarlierClaim => "earlier claim",
            Self::WriteBack => "write-back",
            Self::EarlierWriteBack => "earlier write-back",
            Self::Heartbeat => "heartbeat",
            Self::PutBack => "put-back",
            Self::Withdrawal => "withdrawal",
            Self::Release => "release",
        })
    }
}
