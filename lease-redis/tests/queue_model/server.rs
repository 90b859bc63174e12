//! The server's handling of requests: the scripts, and `SET NX`.

use crate::model::Steps;
use crate::queue::{
    Place, end, follow, free_beside_a_waiter, grant, is_same_tenure, is_tenure, next_token,
    overtakes, settle, tell,
};
use crate::setup::{Clocks, Rule, Setup};
use crate::state::{BeatPhase, End, Grant, Kind, Lock, MOST_REQUESTS, Phase, State};
use crate::step::{Message, Step};
use crate::violation::Violation;

impl Steps<'_> {
    pub(crate) fn deliver(&mut self, place: usize) {
        let (setup, client) = (self.setup, self.state.clients[place]);
        for number in (1..=MOST_REQUESTS).filter(|number| client.flying & 1 << number != 0) {
            let role = setup.roles[place];
            let message = match role.adopts {
                Some(_) => Message::Adoption,
                None if number <= role.plain => Message::Plain,
                None => Message::Enqueue,
            };
            self.then_checked(Step::Arrives(place, message, number.into()), |state| {
                state.clients[place].flying &= !(1 << number);
                match message {
                    Message::Adoption => adopt(setup, state, place, number),
                    Message::Plain => {
                        obtain(setup, state, place, number);
                        None
                    }
                    _ => enqueue(setup, state, place, number),
                }
            });
        }
        for slot in 0..client.beats.len() {
            if client.beats[slot].phase == BeatPhase::Sent {
                self.deliver_beat(place, slot);
            }
        }
        if client.end != End::Nothing {
            let number = client.asked.into();
            self.then_checked(Step::Arrives(place, Message::End, number), |state| {
                state.clients[place].end = End::Nothing;
                end(setup, state, place, client.end)
            });
        }
        self.deliver_eviction(place);
    }

    fn deliver_beat(&mut self, place: usize, slot: usize) {
        let setup = self.setup;
        let number = u8::try_from(slot + 1).unwrap();
        self.then_checked(Step::Arrives(place, Message::Beat, number.into()), |state| {
            let (client, lock) = (&mut state.clients[place], &mut state.data.lock);
            let beat = &mut client.beats[slot];
            let same = is_same_tenure(setup, *lock, beat.grant) || setup.leaves_out(Rule::Tenure);
            if !lock.is_held_by(place) || !same || number <= lock.beat {
                beat.phase = BeatPhase::Nothing;
                return None;
            }
            let is_own = is_tenure(*lock, beat.grant);
            lock.beat = number;
            // The expiry is one ttl after the arrival, and so never earlier than before.
            lock.expiry = lock.expiry.max(beat.sent);
            if lock.grant.token < beat.grant.token {
                (lock.grant.token, lock.grant.followed) = (beat.grant.token, beat.grant.followed);
            }
            beat.phase = BeatPhase::Extended;
            let relied = match client.phase {
                Phase::Holding => true,
                Phase::Waiting => setup.clocks == Clocks::Wrong || beat.sent > 0,
                Phase::Idle | Phase::HandedOver | Phase::Over => false,
            };
            if beat.grant.followed && relied {
                return Some(Violation::ExtendedAfterASuccessor);
            }
            (!is_own).then_some(Violation::ProlongedForNobody)
        });
    }

    fn deliver_eviction(&mut self, place: usize) {
        let lock = self.state.data.lock;
        if self.state.evictions == 0 || !lock.is_held_by(place) {
            return;
        }
        let number = lock.grant.number.into();
        self.then(Step::Arrives(place, Message::Eviction, number), |state| {
            state.evictions -= 1;
            state.data.lock.kind = Kind::Evicted;
        });
    }
}

pub(crate) fn enqueue(
    setup: &Setup,
    state: &mut State,
    place: usize,
    number: u8,
) -> Option<Violation> {
    if state.data.lock.is_held_by(place) {
        tell_of_lock(setup, state, place, number);
        return None;
    }
    let mut broken = None;
    if let Some(index) = state.data.queue.find(place) {
        renew(setup, state, index, number);
        if !setup.leaves_out(Rule::RenewalSettles) {
            broken = settle(setup, state, place);
        }
        return broken.or_else(|| free_beside_a_waiter(setup, state));
    }
    if !setup.leaves_out(Rule::EnqueueSettles) {
        broken = settle(setup, state, place);
    }
    if state.data.lock.kind == Kind::Absent {
        let overtaken = overtakes(setup, state, None);
        grant(setup, state, place, number, place);
        return broken.or(overtaken);
    }
    append(state, place, number);
    broken
}

fn append(state: &mut State, place: usize, number: u8) {
    let queue = &mut state.data.queue;
    let arrival = 1 + queue.places().iter().map(|place| place.arrival).max().unwrap_or(0);
    let client = u8::try_from(place).unwrap();
    queue.append(Place { client, number, arrival, ..Place::default() });
}

fn renew(setup: &Setup, state: &mut State, index: usize, number: u8) {
    let queue = &mut state.data.queue;
    let place = &mut queue.places_mut()[index];
    place.number = place.number.max(number);
    (place.used, place.silent) = (false, false);
    if !setup.leaves_out(Rule::RenewalRestartsAge) {
        place.dead = false;
    }
    if setup.leaves_out(Rule::RenewalKeepsPlace) {
        let place = queue.remove(index);
        queue.append(place);
    }
}

/// `SET NX GET` and `XADD` in one transaction, which ignores the queue.
fn obtain(setup: &Setup, state: &mut State, place: usize, number: u8) {
    if state.data.lock.is_held_by(place) {
        tell_of_lock(setup, state, place, number);
        return;
    }
    if state.data.lock.kind != Kind::Absent {
        return;
    }
    let token = next_token(setup, state);
    // SET comes before XADD, so the value has no token.
    state.data.lock = Lock {
        kind: Kind::Held,
        client: u8::try_from(place).unwrap(),
        grant: Grant { number, plain: true, ..Grant::default() },
        beat: 0,
        expiry: state.clients[place].sent[usize::from(number) - 1],
    };
    follow(state, place, token);
    tell(setup, state, place, Grant { number, token, plain: true, followed: false }, number);
}

/// If the lock has no token, gives it a token.
fn tell_of_lock(setup: &Setup, state: &mut State, place: usize, answers: u8) {
    if state.data.lock.grant.plain && state.data.lock.grant.token == 0 {
        let token = next_token(setup, state);
        follow(state, place, token);
        let grant = &mut state.data.lock.grant;
        (grant.token, grant.followed) = (token, false);
    }
    tell(setup, state, place, state.data.lock.grant, answers);
}

fn adopt(setup: &Setup, state: &mut State, place: usize, number: u8) -> Option<Violation> {
    let from = setup.roles[place].adopts.unwrap();
    let (lock, handed) = (state.data.lock, state.clients[place].handed);
    if lock.is_held_by(place) {
        tell_of_lock(setup, state, place, number);
        return None;
    }
    let same = is_same_tenure(setup, lock, handed) || setup.leaves_out(Rule::Tenure);
    if !lock.is_held_by(from) || !same {
        return None;
    }
    grant(setup, state, place, number, place);
    let other = !is_tenure(lock, handed) || handed.followed;
    other.then_some(Violation::AdoptedAfterAnother)
}
