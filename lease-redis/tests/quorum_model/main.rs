//! A model of the quorum's protocol, searched through: every order in which requests arrive, are
//! lost, or are answered in vain, while leases may run out at any instant.
//!
//! There is no time in it. What it shows holds whatever the clocks say, and however long a
//! process is paused: tokens are unique and ordered, a lease that was followed by another is not
//! extended any more, and what was released is not taken again by a request that was late. Each
//! rule that this rests on is taken away once, and then the search finds what it is for.
//!
//! The usual size takes seconds. The full one takes minutes and a few gigabytes:
//! `cargo test --release -p lease-redis --test quorum_model -- --ignored --nocapture`
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "places are in range by construction, and a search tells how far it went"
)]

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

const NODES: usize = 3;
const MAJORITY: usize = NODES / 2 + 1;
const MOST_CLAIMS: usize = 3;

/// What is searched: how many claims there are, what each may do, and which rules are left out.
#[derive(Clone, Copy)]
struct Setup {
    claims: usize,
    /// How many of the claims heartbeat, put back and release; the others end with their grant.
    lasting: usize,
    /// Where leases may be put back.
    put_back: [bool; NODES],
    /// How often a node may restart without its memory.
    restarts: u8,
    /// The counters to begin with.
    counters: [u8; NODES],
    /// Whether the first claim was granted before the search begins, by a bare majority.
    begun: bool,
    without: Option<Rule>,
    /// What the search goes on to find; without, it ends at the first violation.
    sought: Option<Violation>,
}

/// A rule of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// The token is written back to a majority before the grant is answered.
    WriteBack,
    /// It is written only while the node's key is the grant's.
    GuardOfWriteBack,
    /// A node whose late vote is larger than the token does not stand for it.
    LargerVotesDoNotCount,
    /// A grant is put back only where none came after it.
    NotPutBackAfterAnother,
    /// A grant is put back only where it was not released.
    NotPutBackAfterRelease,
    /// Being put back does not count as a heartbeat.
    PutBackDoesNotCount,
    /// A node that lost its counter goes on from its time.
    TimeAfterRestart,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Node {
    /// Whose key it is: a claim's number and one, or zero.
    holder: u8,
    counter: u8,
    granted: u8,
    last: u8,
    /// Its counter was written under another run.
    restarted: bool,
}

/// What became of one request to one node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Request {
    #[default]
    Unsent,
    /// It may arrive at any time, or never.
    Underway,
    /// It arrived, and the answer was yes.
    Yes,
    /// The answer was no, or nobody heard it.
    No,
}
use Request::{No, Underway, Unsent, Yes};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Phase {
    #[default]
    Idle,
    Asking,
    WritingBack,
    Granted,
    Released,
    Withdrawn,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Claim {
    phase: Phase,
    token: u8,
    /// The largest token that was granted before it began: its own must be larger.
    floor: u8,
    asked: [Request; NODES],
    votes: [u8; NODES],
    raised: [Request; NODES],
    beaten: [Request; NODES],
    /// Whether a larger token had been granted when the heartbeat was sent.
    followed: bool,
    put_back: [Request; NODES],
    /// Releases, or withdrawals.
    freed: [Request; NODES],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    nodes: [Node; NODES],
    claims: [Claim; MOST_CLAIMS],
    restarts: u8,
}

/// What must never happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Violation {
    OneTokenTwice,
    TokensOutOfOrder,
    ExtendedAfterASuccessor,
    TakenAfterItsRelease,
}

struct Found {
    states: usize,
    violation: Option<Violation>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} states: {:?}", self.states, self.violation)
    }
}

/// Breadth first, so that what is found is among the shortest.
fn search(setup: Setup) -> Found {
    let mut nodes = [Node::default(); NODES];
    for (node, counter) in nodes.iter_mut().zip(setup.counters) {
        node.counter = counter;
    }
    let mut first = State { nodes, claims: Default::default(), restarts: setup.restarts };
    if setup.begun {
        (first.claims[0].phase, first.claims[0].token) = (Phase::Granted, 1);
        for node in &mut first.nodes[..MAJORITY] {
            *node = Node { holder: name(0), counter: 1, granted: name(0), ..*node };
        }
    }
    let mut seen: HashSet<State, BuildHasherDefault<Mix>> = HashSet::default();
    seen.insert(first);
    let mut level = vec![first];
    while !level.is_empty() {
        let mut next = Vec::new();
        for state in level {
            let mut steps = Steps { setup, state, next: Vec::new(), violation: None };
            steps.take_all();
            if steps.violation.is_some()
                && setup.sought.is_none_or(|it| steps.violation == Some(it))
            {
                return Found { states: seen.len(), violation: steps.violation };
            }
            next.extend(steps.next.into_iter().filter(|state| seen.insert(*state)));
        }
        level = next;
    }
    Found { states: seen.len(), violation: None }
}

/// All that may happen next in one state.
struct Steps {
    setup: Setup,
    state: State,
    next: Vec<State>,
    violation: Option<Violation>,
}

impl Steps {
    fn take_all(&mut self) {
        for node in 0..NODES {
            self.run_out(node);
            self.restart(node);
        }
        for claim in 0..self.setup.claims {
            self.act(claim);
            for node in 0..NODES {
                self.deliver(claim, node);
            }
        }
    }

    fn goes_on(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.state;
        change(&mut state);
        self.next.push(state);
    }

    /// A request arrives: somebody hears the answer, or nobody does.
    fn answers(&mut self, change: impl Fn(&mut State, Request)) {
        self.goes_on(|state| change(state, Yes));
        self.goes_on(|state| change(state, No));
    }

    fn run_out(&mut self, node: usize) {
        if self.state.nodes[node].holder != 0 {
            self.goes_on(|state| state.nodes[node].holder = 0);
        }
    }

    fn restart(&mut self, node: usize) {
        if self.state.restarts > 0 {
            self.goes_on(|state| {
                state.nodes[node] = Node { restarted: true, ..Node::default() };
                state.restarts -= 1;
            });
        }
    }

    /// What a claim does by itself.
    fn act(&mut self, place: usize) {
        let claim = self.state.claims[place];
        let lasting = place < self.setup.lasting;
        match claim.phase {
            Phase::Idle => {
                let floor = self.largest_granted();
                self.goes_on(|state| {
                    let claim = &mut state.claims[place];
                    (claim.phase, claim.floor) = (Phase::Asking, floor);
                    claim.asked = [Underway; NODES];
                });
            }
            Phase::Asking => {
                if count(claim.asked, Yes) >= MAJORITY {
                    self.count_votes(place);
                }
                if lasting {
                    self.free(place, Phase::Withdrawn);
                }
            }
            Phase::WritingBack => {
                if count(claim.raised, Yes) >= MAJORITY {
                    self.grant(place, claim.token);
                }
                if lasting {
                    self.free(place, Phase::Withdrawn);
                }
            }
            Phase::Granted if lasting => {
                if claim.beaten == [Unsent; NODES] {
                    let followed = self.largest_granted() > claim.token;
                    self.goes_on(|state| {
                        state.claims[place].beaten = [Underway; NODES];
                        state.claims[place].followed = followed;
                    });
                }
                for node in 0..NODES {
                    if claim.put_back[node] == Unsent && self.setup.put_back[node] {
                        self.goes_on(|state| state.claims[place].put_back[node] = Underway);
                    }
                }
                self.free(place, Phase::Released);
            }
            Phase::Granted | Phase::Released | Phase::Withdrawn => (),
        }
    }

    /// The largest count is the token; who counted to less is told.
    fn count_votes(&mut self, place: usize) {
        let claim = self.state.claims[place];
        let token = (0..NODES).filter(|n| claim.asked[*n] == Yes).map(|n| claim.votes[n]).max();
        let token = token.unwrap_or(0);
        if self.leaves_out(Rule::WriteBack) {
            return self.grant(place, token);
        }
        self.goes_on(|state| {
            let claim = &mut state.claims[place];
            (claim.phase, claim.token) = (Phase::WritingBack, token);
            for node in 0..NODES {
                if claim.asked[node] == Yes {
                    claim.raised[node] = if claim.votes[node] == token { Yes } else { Underway };
                }
            }
        });
    }

    fn grant(&mut self, place: usize, token: u8) {
        let granted = |claim: &Claim| matches!(claim.phase, Phase::Granted | Phase::Released);
        let claims = &self.state.claims;
        if claims.iter().any(|claim| granted(claim) && claim.token == token) {
            self.violation = Some(Violation::OneTokenTwice);
        } else if token <= claims[place].floor {
            self.violation = Some(Violation::TokensOutOfOrder);
        }
        self.goes_on(|state| {
            (state.claims[place].phase, state.claims[place].token) = (Phase::Granted, token);
        });
    }

    fn free(&mut self, place: usize, phase: Phase) {
        self.goes_on(|state| {
            state.claims[place].phase = phase;
            state.claims[place].freed = [Underway; NODES];
        });
    }

    /// Whatever of `place` is underway to `node` may arrive now.
    fn deliver(&mut self, place: usize, node: usize) {
        let claim = self.state.claims[place];
        if claim.asked[node] == Underway {
            self.deliver_claim(place, node);
        }
        if claim.raised[node] == Underway {
            let unguarded = self.leaves_out(Rule::GuardOfWriteBack);
            if self.holds(place, node) || unguarded {
                self.answers(|state, answer| {
                    raise(&mut state.nodes[node], claim.token);
                    state.claims[place].raised[node] = answer;
                });
            } else {
                self.goes_on(|state| state.claims[place].raised[node] = No);
            }
        }
        if claim.beaten[node] == Underway {
            self.deliver_heartbeat(place, node);
        }
        if claim.put_back[node] == Underway {
            self.deliver_put_back(place, node);
        }
        if claim.freed[node] == Underway {
            self.deliver_release(place, node);
        }
    }

    fn deliver_claim(&mut self, place: usize, node: usize) {
        let name = name(place);
        let there = self.state.nodes[node];
        let free = there.holder == 0 && there.granted != name && there.last != name;
        if !free {
            return self.goes_on(|state| state.claims[place].asked[node] = No);
        }
        self.check_not_taken_after_release(place, node);
        let time = self.largest_counted() + 1;
        let floor = if self.leaves_out(Rule::TimeAfterRestart) { 0 } else { time };
        let larger_votes_count = self.leaves_out(Rule::LargerVotesDoNotCount);
        self.answers(|state, answer| {
            let there = &mut state.nodes[node];
            there.counter += 1;
            if there.restarted {
                there.counter = there.counter.max(floor);
            }
            (there.restarted, there.holder, there.granted) = (false, name, name);
            let counted = there.counter;
            let claim = &mut state.claims[place];
            claim.asked[node] = answer;
            if answer == Yes {
                claim.votes[node] = counted;
                if claim.phase == Phase::WritingBack {
                    claim.raised[node] = match counted.cmp(&claim.token) {
                        Ordering::Less => Underway,
                        Ordering::Equal => Yes,
                        Ordering::Greater if larger_votes_count => Yes,
                        Ordering::Greater => No,
                    };
                }
            }
        });
    }

    fn deliver_heartbeat(&mut self, place: usize, node: usize) {
        if !self.holds(place, node) {
            return self.goes_on(|state| state.claims[place].beaten[node] = No);
        }
        let claim = self.state.claims[place];
        if claim.followed && count(claim.beaten, Yes) + 1 >= MAJORITY {
            self.violation = Some(Violation::ExtendedAfterASuccessor);
        }
        self.answers(|state, answer| {
            raise(&mut state.nodes[node], claim.token);
            state.claims[place].beaten[node] = answer;
        });
    }

    fn deliver_put_back(&mut self, place: usize, node: usize) {
        let (claim, there) = (self.state.claims[place], self.state.nodes[node]);
        let followed = there.counter > claim.token && there.granted != name(place);
        let released = there.last == name(place);
        let refused = there.holder != 0
            || (followed && !self.leaves_out(Rule::NotPutBackAfterAnother))
            || (released && !self.leaves_out(Rule::NotPutBackAfterRelease));
        if refused {
            return self.goes_on(|state| state.claims[place].put_back[node] = No);
        }
        self.check_not_taken_after_release(place, node);
        let counts = self.leaves_out(Rule::PutBackDoesNotCount) && claim.followed;
        if counts && count(claim.beaten, Yes) + 1 >= MAJORITY {
            self.violation = Some(Violation::ExtendedAfterASuccessor);
        }
        self.goes_on(|state| {
            let there = &mut state.nodes[node];
            (there.holder, there.granted) = (name(place), name(place));
            raise(there, claim.token);
            state.claims[place].put_back[node] = No;
            if counts {
                state.claims[place].beaten[node] = Yes;
            }
        });
    }

    /// Yes: it is remembered there.
    fn deliver_release(&mut self, place: usize, node: usize) {
        let holds = self.holds(place, node);
        let free = self.state.nodes[node].holder == 0;
        let withdrawn = self.state.claims[place].phase == Phase::Withdrawn;
        self.goes_on(|state| {
            let there = &mut state.nodes[node];
            if holds {
                there.holder = 0;
            }
            if withdrawn {
                if holds {
                    there.granted = 0;
                }
            } else if holds || free {
                there.last = name(place);
            }
            let remembered = !withdrawn && (holds || free);
            state.claims[place].freed[node] = if remembered { Yes } else { No };
        });
    }

    fn check_not_taken_after_release(&mut self, place: usize, node: usize) {
        // A later release may have taken the place of this one.
        let remembered = self.state.claims[place].freed[node] == Yes;
        let replaced = self.state.nodes[node].last != name(place);
        if remembered && !replaced {
            self.violation = Some(Violation::TakenAfterItsRelease);
        }
    }

    fn holds(&self, place: usize, node: usize) -> bool {
        self.state.nodes[node].holder == name(place)
    }

    fn largest_granted(&self) -> u8 {
        let granted = |claim: &&Claim| matches!(claim.phase, Phase::Granted | Phase::Released);
        self.state.claims.iter().filter(granted).map(|claim| claim.token).max().unwrap_or(0)
    }

    /// A server's time is past every number that was counted to so far.
    fn largest_counted(&self) -> u8 {
        let votes = self.state.claims.iter().flat_map(|claim| claim.votes);
        let counters = self.state.nodes.iter().map(|node| node.counter);
        votes.chain(counters).max().unwrap_or(0)
    }

    fn leaves_out(&self, rule: Rule) -> bool {
        self.setup.without == Some(rule)
    }
}

fn name(place: usize) -> u8 {
    u8::try_from(place + 1).unwrap()
}

fn raise(node: &mut Node, token: u8) {
    node.counter = node.counter.max(token);
}

fn count(requests: [Request; NODES], answer: Request) -> usize {
    requests.iter().filter(|request| **request == answer).count()
}

/// A hash for states: they are many, and nobody chooses them to collide.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

const SMALL: Setup = Setup {
    claims: 2,
    lasting: 0,
    put_back: [true; NODES],
    restarts: 0,
    counters: [2, 0, 1],
    begun: false,
    without: None,
    sought: None,
};

/// One claim was granted, and may run out at any time; another comes. One of the nodes that had
/// granted the first is given it back.
const BEGUN: Setup =
    Setup { lasting: 1, put_back: [false, true, false], begun: true, counters: [0, 0, 0], ..SMALL };

#[track_caller]
fn sound(setup: Setup) {
    let found = search(setup);

    println!("{found}");
    assert_eq!(found.violation, None, "{found}");
}

#[track_caller]
fn finds(rule: Rule, violation: Violation, setup: Setup) {
    let found = search(Setup { without: Some(rule), sought: Some(violation), ..setup });

    println!("without {rule:?}: {found}");
    assert_eq!(found.violation, Some(violation), "without {rule:?}: {found}");
}

#[test]
fn tokens_are_unique_and_ordered() {
    for counters in [[0, 0, 0], [0, 0, 1], [0, 1, 2], [2, 2, 0]] {
        sound(Setup { counters, ..SMALL });
    }
}

#[test]
fn a_lease_that_runs_out_is_not_extended_beside_its_successor() {
    sound(BEGUN);
}

#[test]
fn tokens_are_unique_and_ordered_after_a_restart() {
    sound(Setup { restarts: 1, counters: [1, 1, 1], ..SMALL });
}

#[test]
#[ignore = "minutes: the full size"]
fn tokens_are_unique_and_ordered_for_three_claims() {
    for counters in [[0, 0, 0], [0, 1, 2]] {
        sound(Setup { claims: 3, counters, ..SMALL });
    }
}

#[test]
#[ignore = "minutes: the full size"]
fn a_lease_that_was_followed_is_not_extended_nor_put_back() {
    sound(Setup { put_back: [true; NODES], ..BEGUN });
    for counters in [[0, 0, 0], [0, 1, 2]] {
        sound(Setup { lasting: 1, counters, ..SMALL });
    }
}

#[test]
fn without_the_write_back_a_token_is_given_twice() {
    finds(Rule::WriteBack, Violation::OneTokenTwice, SMALL);
}

#[test]
fn without_its_guard_a_token_is_given_twice() {
    finds(Rule::GuardOfWriteBack, Violation::OneTokenTwice, SMALL);
}

#[test]
fn put_back_after_another_grant_a_lease_is_extended_beside_it() {
    finds(Rule::NotPutBackAfterAnother, Violation::ExtendedAfterASuccessor, BEGUN);
}

#[test]
fn put_back_after_its_release_a_key_is_taken_for_nobody() {
    let setup = Setup { claims: 1, ..BEGUN };
    finds(Rule::NotPutBackAfterRelease, Violation::TakenAfterItsRelease, setup);
}

#[test]
fn if_being_put_back_counted_a_lease_would_be_extended_beside_another() {
    finds(Rule::PutBackDoesNotCount, Violation::ExtendedAfterASuccessor, BEGUN);
}

#[test]
fn if_larger_votes_counted_a_token_would_be_given_twice() {
    finds(Rule::LargerVotesDoNotCount, Violation::OneTokenTwice, SMALL);
}

#[test]
fn without_its_time_a_node_that_restarted_gives_a_token_twice() {
    let setup = Setup { restarts: 1, counters: [1, 1, 1], ..SMALL };
    finds(Rule::TimeAfterRestart, Violation::OneTokenTwice, setup);
}
