//! The server's handling of requests.

use super::model::Steps;
use super::setup::{Clocks, Rule, Setup, Write};
use super::state::{BeatPhase, Grant, Kind, Phase, Release, RequestPhase, State, Value};
use super::step::{Message, Step};
use super::violation::Violation;

#[derive(Clone, Copy)]
enum Outcome {
    Granted,
    /// The nonce already holds the key, by this request.
    Again(u8),
    Held,
}

impl Steps<'_> {
    pub(crate) fn deliver(&mut self, place: usize) {
        let claim = self.state.claims[place];
        for (slot, request) in claim.requests.iter().enumerate() {
            if !is_under_way(request.phase) {
                continue;
            }
            let members = self.members(place, slot);
            if members.first() != Some(&(place, slot)) {
                continue;
            }
            match (request.phase, self.setup.write) {
                (RequestPhase::Sent, Write::Transaction) => self.deliver_claims(&members),
                (RequestPhase::Sent, _) => self.deliver_sets(&members),
                _ => self.deliver_xadd(&members),
            }
        }
        for (slot, beat) in claim.beats.iter().enumerate() {
            if beat.phase == BeatPhase::Sent {
                self.deliver_beat(place, slot);
            }
        }
        if claim.release != Release::Nothing {
            self.deliver_release(place);
        }
        self.deliver_eviction(place);
    }

    /// A batch arrives as a whole.
    fn members(&self, place: usize, slot: usize) -> Vec<(usize, usize)> {
        let setup = self.setup;
        let first = self.state.claims[place].requests[slot];
        let mut members = Vec::new();
        for (other, claim) in self.state.claims.iter().enumerate() {
            for (slot_of_other, request) in claim.requests.iter().enumerate() {
                let same_batch = request.batch != 0
                    && request.batch == first.batch
                    && setup.roles[other].batcher == setup.roles[place].batcher;
                if is_under_way(request.phase)
                    && (same_batch || (other, slot_of_other) == (place, slot))
                {
                    members.push((other, slot_of_other));
                }
            }
        }
        members
    }

    /// One transaction has a SET for each claim, and one XADD.
    fn deliver_claims(&mut self, members: &[(usize, usize)]) {
        let setup = self.setup;
        self.then_checked(arrives(Message::Claim, Message::Batch, members), |state| {
            let token = next_token(setup, state);
            let mut violation = None;
            for (place, slot) in members.iter().copied() {
                let (outcome, broken) = set(setup, state, place, slot);
                violation = violation.or(broken);
                answer(setup, state, (place, slot), outcome, token);
            }
            violation
        });
    }

    fn deliver_sets(&mut self, members: &[(usize, usize)]) {
        let setup = self.setup;
        self.then_checked(arrives(Message::Set, Message::SetsOfBatch, members), |state| {
            let mut violation = None;
            for (place, slot) in members.iter().copied() {
                let (outcome, broken) = set(setup, state, place, slot);
                violation = violation.or(broken);
                let request = &mut state.claims[place].requests[slot];
                request.phase = match outcome {
                    Outcome::Granted => RequestPhase::Set,
                    Outcome::Again(earlier) => {
                        request.grant.request = earlier;
                        RequestPhase::SetAgain
                    }
                    Outcome::Held => RequestPhase::Nothing,
                };
            }
            violation
        });
    }

    fn deliver_xadd(&mut self, members: &[(usize, usize)]) {
        let setup = self.setup;
        self.then(arrives(Message::Xadd, Message::XaddOfBatch, members), |state| {
            let token = next_token(setup, state);
            for (place, slot) in members.iter().copied() {
                let request = &state.claims[place].requests[slot];
                let outcome = match request.phase {
                    RequestPhase::Set => Outcome::Granted,
                    _ => Outcome::Again(request.grant.request),
                };
                answer(setup, state, (place, slot), outcome, token);
            }
        });
    }

    fn deliver_beat(&mut self, place: usize, slot: usize) {
        let (setup, number) = (self.setup, slot + 1);
        self.then_checked(Step::Arrives(place, Message::Beat, number), |state| {
            let claim = &mut state.claims[place];
            let beat = &mut claim.beats[slot];
            let value = &mut state.keys[setup.roles[place].key].value;
            let same = value.request == beat.grant.request;
            let later = number > usize::from(value.beat) || setup.leaves_out(Rule::BeatNumber);
            if !is_held_by(*value, place)
                || !(same || setup.leaves_out(Rule::RequestNumber))
                || !later
            {
                beat.phase = BeatPhase::Nothing;
                return None;
            }
            value.beat = u8::try_from(number).unwrap().max(value.beat);
            // The expiry is one ttl after the arrival, and so never earlier than before.
            value.expiry = value.expiry.max(beat.sent);
            beat.phase = BeatPhase::Extended;
            let relied = match claim.phase {
                Phase::Holding => true,
                Phase::Asking => setup.clocks == Clocks::Wrong || claim.beats[slot].sent > 0,
                Phase::Idle | Phase::HandedOver | Phase::Over => false,
            };
            if claim.beats[slot].grant.followed && relied {
                Some(Violation::ExtendedAfterASuccessor)
            } else if !same {
                Some(Violation::ProlongedForNobody)
            } else {
                (claim.phase == Phase::Over).then_some(Violation::ProlongedAfterItsEnd)
            }
        });
    }

    fn deliver_release(&mut self, place: usize) {
        let setup = self.setup;
        let release = self.state.claims[place].release;
        let number = self.state.claims[place].asked.into();
        self.then_checked(Step::Arrives(place, Message::Release, number), |state| {
            state.claims[place].release = Release::Nothing;
            let value = &mut state.keys[setup.roles[place].key].value;
            let occupied = matches!(value.kind, Kind::Held | Kind::Evicted);
            let own = occupied && usize::from(value.claim) == place;
            if let Release::Reserving(request) = release {
                let same = value.request == request;
                if own && (same || setup.leaves_out(Rule::ReservationNamesRequest)) {
                    value.kind = Kind::Reserved;
                    return (!same).then_some(Violation::ReservedForNobody);
                }
            } else if own || occupied && setup.leaves_out(Rule::ReleaseCompares) {
                *value = Value::default();
            }
            None
        });
    }

    fn deliver_eviction(&mut self, place: usize) {
        let (setup, key) = (self.setup, self.setup.roles[place].key);
        if self.state.evictions == 0 || !is_held_by(self.state.keys[key].value, place) {
            return;
        }
        let request = self.state.keys[key].value.request.into();
        self.then(Step::Arrives(place, Message::Eviction, request), |state| {
            state.evictions -= 1;
            if setup.leaves_out(Rule::EvictionKeepsKey) {
                state.keys[key].value = Value::default();
            } else {
                state.keys[key].value.kind = Kind::Evicted;
            }
        });
    }
}

fn is_under_way(phase: RequestPhase) -> bool {
    matches!(phase, RequestPhase::Sent | RequestPhase::Set | RequestPhase::SetAgain)
}

fn arrives(single: Message, batch: Message, members: &[(usize, usize)]) -> Step {
    let (place, slot) = members[0];
    Step::Arrives(place, if members.len() == 1 { single } else { batch }, slot + 1)
}

fn is_held_by(value: Value, place: usize) -> bool {
    value.kind == Kind::Held && usize::from(value.claim) == place
}

fn next_token(setup: &Setup, state: &mut State) -> u8 {
    let least = if setup.leaves_out(Rule::TimeAfterLoss) { 0 } else { state.time };
    state.stream = state.stream.max(least) + 1;
    state.time = state.time.max(state.stream);
    state.stream
}

fn set(
    setup: &Setup,
    state: &mut State,
    place: usize,
    slot: usize,
) -> (Outcome, Option<Violation>) {
    let role = setup.roles[place];
    let claim = state.claims[place];
    let value = state.keys[role.key].value;
    if is_held_by(value, place) {
        return (Outcome::Again(value.request), None);
    }
    let mut violation = None;
    if let Some(from) = role.adopts {
        let same = value.request == claim.handed.request;
        if !is_held_by(value, from) || !(same || setup.leaves_out(Rule::RequestNumber)) {
            return (Outcome::Held, None);
        }
        if !same || claim.handed.followed {
            violation = Some(Violation::AdoptedAfterAnother);
        }
    } else if value.kind != Kind::Absent {
        return (Outcome::Held, None);
    }
    state.keys[role.key].value = Value {
        kind: Kind::Held,
        claim: u8::try_from(place).unwrap(),
        request: u8::try_from(slot + 1).unwrap(),
        beat: 0,
        expiry: claim.requests[slot].sent,
    };
    (Outcome::Granted, violation)
}

/// Marks smaller tokens of other claims as followed.
fn answer(
    setup: &Setup,
    state: &mut State,
    (place, slot): (usize, usize),
    outcome: Outcome,
    token: u8,
) {
    let number = u8::try_from(slot + 1).unwrap();
    let request = &mut state.claims[place].requests[slot];
    let (phase, granted) = match outcome {
        Outcome::Granted => (RequestPhase::Granted, number),
        Outcome::Again(earlier) => (RequestPhase::Again, earlier),
        Outcome::Held => {
            request.phase = RequestPhase::Nothing;
            return;
        }
    };
    request.phase = phase;
    request.grant = Grant { request: granted, token, followed: false };
    // Between the commands of a pipeline, a later grant may have a smaller token. This does harm
    // only when a claim accepts the larger token.
    if setup.write == Write::Transaction {
        state.follow(setup, place, token);
    }
}
