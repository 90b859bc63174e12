//! The actions of a claim.

use super::model::Steps;
use super::setup::{Again, Clocks, Rule, Setup};
use super::state::{
    Beat, BeatPhase, Claim, Grant, Phase, Release, Request, RequestPhase, State, change_sends,
};
use super::step::{Action, Step};
use super::violation::Violation;

impl Steps<'_> {
    pub(crate) fn act(&mut self, place: usize) {
        let claim = self.state.claims[place];
        self.pass_deadline(place);
        if self.may_ask(place) {
            self.ask(place);
        }
        match claim.phase {
            Phase::Idle | Phase::HandedOver => (),
            Phase::Asking => {
                for slot in 0..claim.requests.len() {
                    self.use_answer(place, slot);
                }
                self.accept_extensions(place);
                self.then(Step::Claim(place, Action::GivesUp, claim.asked.into()), |state| {
                    let claim = &mut state.claims[place];
                    (claim.phase, claim.release) = (Phase::Over, Release::Sent);
                });
            }
            Phase::Holding => {
                if claim.beaten < self.setup.roles[place].beats {
                    let number = usize::from(claim.beaten) + 1;
                    self.then(Step::Claim(place, Action::SendsBeat, number), |state| {
                        send_beat(self.setup, state, place, claim.grant);
                    });
                }
                if self.has_right_clocks() {
                    self.accept_extensions(place);
                }
                self.end(place);
            }
            Phase::Over => {
                if self.setup.leaves_out(Rule::DeadlineIsFinal) && claim.release == Release::Nothing
                {
                    self.accept_extensions(place);
                }
            }
        }
    }

    /// With wrong clocks, deadlines have no effect.
    fn pass_deadline(&mut self, place: usize) {
        let role = self.setup.roles[place];
        let next = self.state.claims[place].next_send(&self.state.keys[role.key], place);
        if !self.has_right_clocks() || next == 1 {
            return;
        }
        let revivable = self.setup.leaves_out(Rule::DeadlineIsFinal);
        self.then(Step::Claim(place, Action::DeadlinePasses, 1), |state| {
            let claim = &mut state.claims[place];
            let relied = claim.deadline > 0;
            change_sends(claim, &mut state.keys[role.key], place, |sent| {
                *sent = sent.saturating_sub(1);
            });
            if claim.phase == Phase::Holding && relied && claim.deadline == 0 {
                claim.phase = Phase::Over;
                claim.release = if revivable { Release::Nothing } else { Release::Sent };
            }
        });
    }

    fn may_ask(&self, place: usize) -> bool {
        let (claim, role) = (self.state.claims[place], self.setup.roles[place]);
        let phase = match claim.phase {
            Phase::Idle => role.adopts.is_none() || claim.handed.request != 0,
            Phase::Asking => true,
            Phase::Over => self.setup.leaves_out(Rule::NewNonceAfterRelease),
            Phase::Holding | Phase::HandedOver => false,
        };
        phase && claim.asked < role.requests && place < self.setup.claims
    }

    fn ask(&mut self, place: usize) {
        let setup = self.setup;
        let number = usize::from(self.state.claims[place].asked) + 1;
        self.then(Step::Claim(place, Action::Asks, number), |state| {
            send_request(setup, state, place, 0);
        });
        let batcher = setup.roles[place].batcher;
        if batcher == 0 {
            return;
        }
        for other in place + 1..setup.claims {
            if setup.roles[other].batcher != batcher || !self.may_ask(other) {
                continue;
            }
            let batch = self.state.batches[batcher - 1] + 1;
            self.then(Step::Claim(place, Action::AsksInBatch, batch.into()), |state| {
                state.batches[batcher - 1] = batch;
                send_request(setup, state, place, batch);
                send_request(setup, state, other, batch);
            });
        }
    }

    fn use_answer(&mut self, place: usize, slot: usize) {
        let claim = self.state.claims[place];
        let request = claim.requests[slot];
        let named = usize::from(request.grant.request);
        match request.phase {
            RequestPhase::Nothing
            | RequestPhase::Sent
            | RequestPhase::Set
            | RequestPhase::SetAgain => (),
            RequestPhase::Granted => {
                if !self.is_late(request.sent) || self.setup.leaves_out(Rule::DeadlineCheck) {
                    self.accept_grant(place, slot, Action::Accepts, request.sent);
                }
                self.confirm(place, slot);
            }
            RequestPhase::Again => match self.setup.again {
                Again::Heartbeat => self.confirm(place, slot),
                Again::NamedSend => {
                    let sent = claim.requests[named - 1].sent;
                    if !self.is_late(sent) {
                        self.accept_grant(place, slot, Action::AcceptsAgain, sent);
                    }
                    self.confirm(place, slot);
                }
                Again::OwnSend => {
                    if !self.is_late(request.sent) {
                        self.accept_grant(place, slot, Action::AcceptsAgain, request.sent);
                    }
                }
            },
        }
    }

    fn accept_grant(&mut self, place: usize, slot: usize, action: Action, deadline: u8) {
        let request = self.state.claims[place].requests[slot];
        let setup = self.setup;
        self.then_checked(Step::Claim(place, action, slot + 1), |state| {
            accept(setup, state, place, request.grant, deadline).or_else(|| low(request))
        });
    }

    fn confirm(&mut self, place: usize, slot: usize) {
        let claim = self.state.claims[place];
        if claim.beaten >= self.setup.roles[place].beats {
            return;
        }
        let request = claim.requests[slot];
        self.then_checked(Step::Claim(place, Action::Confirms, slot + 1), |state| {
            send_beat(self.setup, state, place, request.grant);
            state.claims[place].requests[slot].phase = RequestPhase::Nothing;
            low(request)
        });
    }

    fn accept_extensions(&mut self, place: usize) {
        let (setup, claim) = (self.setup, self.state.claims[place]);
        for slot in 0..claim.beats.len() {
            let beat = claim.beats[slot];
            if beat.phase != BeatPhase::Extended
                || self.is_late(beat.sent) && !self.setup.leaves_out(Rule::DeadlineOfExtension)
            {
                continue;
            }
            self.then_checked(Step::Claim(place, Action::AcceptsExtension, slot + 1), |state| {
                let claim = &mut state.claims[place];
                claim.beats[slot] = Beat::default();
                if claim.phase == Phase::Holding {
                    claim.deadline = claim.deadline.max(beat.sent);
                    return None;
                }
                accept(setup, state, place, beat.grant, beat.sent)
            });
        }
    }

    fn end(&mut self, place: usize) {
        let setup = self.setup;
        let request = self.state.claims[place].grant.request;
        self.then(Step::Claim(place, Action::Releases, request.into()), |state| {
            let claim = &mut state.claims[place];
            (claim.phase, claim.release) = (Phase::Over, Release::Sent);
        });
        if setup.reserves {
            self.then(Step::Claim(place, Action::Reserves, request.into()), |state| {
                let claim = &mut state.claims[place];
                (claim.phase, claim.release) = (Phase::Over, Release::Reserving(request));
            });
        }
        let adopter = (0..setup.claims).find(|other| setup.roles[*other].adopts == Some(place));
        if let Some(adopter) = adopter
            && self.state.claims[adopter].handed.request == 0
        {
            self.then(Step::Claim(place, Action::HandsOver, request.into()), |state| {
                state.claims[adopter].handed = state.claims[place].grant;
                if !setup.leaves_out(Rule::HandOverEndsLease) {
                    state.claims[place].phase = Phase::HandedOver;
                }
            });
        }
    }
}

fn send_request(setup: &Setup, state: &mut State, place: usize, batch: u8) {
    let sent = next_send(setup, state, place);
    let floor = state.keys[setup.roles[place].key].accepted;
    let claim = &mut state.claims[place];
    claim.requests[usize::from(claim.asked)] =
        Request { phase: RequestPhase::Sent, sent, batch, floor, ..Request::default() };
    claim.asked += 1;
    claim.phase = Phase::Asking;
}

fn send_beat(setup: &Setup, state: &mut State, place: usize, grant: Grant) {
    let sent = next_send(setup, state, place);
    let claim = &mut state.claims[place];
    claim.beats[usize::from(claim.beaten)] = Beat { phase: BeatPhase::Sent, sent, grant };
    claim.beaten += 1;
}

fn next_send(setup: &Setup, state: &State, place: usize) -> u8 {
    match setup.clocks {
        Clocks::Wrong => 0,
        Clocks::Right => state.claims[place].next_send(&state.keys[setup.roles[place].key], place),
    }
}

/// Returns the promise that the acceptance of the grant breaks, if any.
fn accept(
    setup: &Setup,
    state: &mut State,
    place: usize,
    grant: Grant,
    deadline: u8,
) -> Option<Violation> {
    let role = setup.roles[place];
    let is_other_holder = |(other, claim): &(usize, &Claim)| {
        *other != place && setup.roles[*other].key == role.key && claim.phase == Phase::Holding
    };
    let holder = state.claims.iter().enumerate().find(is_other_holder);
    let violation = match holder {
        Some((_, holder)) if holder.grant.token == grant.token => Some(Violation::OneTokenTwice),
        Some(_) if setup.clocks == Clocks::Right && !setup.loses_data() => {
            Some(Violation::HeldByTwo)
        }
        _ => None,
    };
    state.follow(setup, place, grant.token);
    let accepted = &mut state.keys[role.key].accepted;
    *accepted = grant.token.max(*accepted);
    let claim = &mut state.claims[place];
    (claim.phase, claim.grant, claim.deadline) = (Phase::Holding, grant, deadline);
    violation
}

fn low(request: Request) -> Option<Violation> {
    (request.grant.token <= request.floor).then_some(Violation::TokensOutOfOrder)
}
