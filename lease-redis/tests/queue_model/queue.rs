//! The queue, and the parts of the scripts that grant a free key to a waiter.

use crate::setup::{Counts, Rule, Setup, Skip};
use crate::state::{End, Grant, Kind, Lock, MOST_CLIENTS, News, State};
use crate::violation::Violation;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Queue {
    places: [Place; MOST_CLIENTS],
    length: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Place {
    pub(crate) client: u8,
    /// The largest number of a request that has arrived since the nonce joined the queue.
    pub(crate) number: u8,
    /// The client has been silent for so long that its place times out.
    pub(crate) silent: bool,
    pub(crate) dead: bool,
    /// The place in the order of arrival, even if the queue has another order.
    pub(crate) arrival: u8,
    /// The place was granted the key, and no request of its client has arrived since.
    pub(crate) used: bool,
}

impl Queue {
    pub(crate) fn places(&self) -> &[Place] {
        &self.places[..usize::from(self.length)]
    }

    pub(crate) fn places_mut(&mut self) -> &mut [Place] {
        &mut self.places[..usize::from(self.length)]
    }

    pub(crate) fn find(&self, client: usize) -> Option<usize> {
        self.places().iter().position(|place| usize::from(place.client) == client)
    }

    pub(crate) fn append(&mut self, place: Place) {
        self.places[usize::from(self.length)] = place;
        self.length += 1;
    }

    pub(crate) fn remove(&mut self, index: usize) -> Place {
        let removed = self.places[index];
        self.places.copy_within(index + 1.., index);
        self.length -= 1;
        self.places[usize::from(self.length)] = Place::default();
        removed
    }
}

/// `caller` is the client whose request the script handles.
pub(crate) fn settle(setup: &Setup, state: &mut State, caller: usize) -> Option<Violation> {
    let (mut broken, mut index) = (None, 0);
    revoke_later(setup, state);
    while state.data.lock.kind == Kind::Absent
        && let Some(place) = state.data.queue.places().get(index).copied()
    {
        if place.dead && setup.leaves_out(Rule::DeadBlockNobody) {
            break;
        }
        if place.dead && !setup.leaves_out(Rule::DeadAreSkipped) {
            state.data.queue.remove(index);
            let lost = (!place.silent).then_some(Violation::LosesItsPlace);
            broken = broken.or(lost);
            continue;
        }
        let client = usize::from(place.client);
        let is_caller = client == caller && !setup.leaves_out(Rule::CallerIsHeard);
        if hears(setup, state, client) || is_caller {
            let next = grant_next(setup, state, index, caller);
            broken = broken.or(next);
            continue;
        }
        if client == caller {
            // Without the rule, the answer contains a grant that the script has taken back.
            grant(setup, state, caller, place.number, caller);
            state.data.lock = Lock::default();
        }
        if setup.leaves_out(Rule::CountBeforePublish) {
            grant(setup, state, client, place.number, caller);
            state.data.lock = Lock::default();
        }
        if setup.skip == Skip::Passes {
            index += 1;
        } else {
            state.data.queue.remove(index);
        }
    }
    broken
}

/// Without `SkipInOneScript`, the server also takes back the grant of an earlier script, if its client does
/// not listen.
fn revoke_later(setup: &Setup, state: &mut State) {
    let lock = state.data.lock;
    if setup.leaves_out(Rule::SkipInOneScript)
        && lock.kind == Kind::Held
        && !hears(setup, state, lock.client.into())
    {
        state.data.lock = Lock::default();
    }
}

fn grant_next(setup: &Setup, state: &mut State, index: usize, caller: usize) -> Option<Violation> {
    let place = state.data.queue.places()[index];
    let overtaken = overtakes(setup, state, Some(place));
    if setup.leaves_out(Rule::GrantLeavesQueue) {
        state.data.queue.places_mut()[index].used = true;
    } else {
        state.data.queue.remove(index);
    }
    grant(setup, state, place.client.into(), place.number, caller);
    if place.used {
        return Some(Violation::GrantedTwice);
    }
    let dead = place.dead.then_some(Violation::GrantedToTheDead);
    overtaken.or(dead)
}

/// The caller gets the grant in its answer.
pub(crate) fn grant(setup: &Setup, state: &mut State, client: usize, number: u8, caller: usize) {
    let token = next_token(setup, state);
    let grant = Grant { number, token, plain: false, followed: false };
    state.data.lock = Lock {
        kind: Kind::Held,
        client: u8::try_from(client).unwrap(),
        grant,
        beat: 0,
        expiry: state.clients[client].sent[usize::from(number) - 1],
    };
    follow(state, client, token);
    let answers = if client == caller { number } else { 0 };
    tell(setup, state, client, grant, answers);
}

pub(crate) fn tell(setup: &Setup, state: &mut State, client: usize, grant: Grant, answers: u8) {
    let answers = if setup.counts == Counts::AnsweredSend { answers } else { 0 };
    state.clients[client].tell(News { grant, answers });
}

/// Always true if the server skips no waiter.
fn hears(setup: &Setup, state: &State, client: usize) -> bool {
    setup.skip == Skip::Never || !state.clients[client].deaf
}

/// A violation is a grant to `place` before a living waiter that arrived earlier. `None` is a client without
/// a place.
pub(crate) fn overtakes(setup: &Setup, state: &State, place: Option<Place>) -> Option<Violation> {
    let mut living =
        state.data.queue.places().iter().filter(|other| is_living(setup, state, **other));
    let earlier = |other: &Place| place.is_none_or(|place| other.arrival < place.arrival);
    living.any(earlier).then_some(Violation::Overtaken)
}

pub(crate) fn free_beside_a_waiter(setup: &Setup, state: &State) -> Option<Violation> {
    let mut places = state.data.queue.places().iter();
    let free = state.data.lock.kind == Kind::Absent;
    (free && places.any(|place| is_living(setup, state, *place)))
        .then_some(Violation::FreeBesideAWaiter)
}

fn is_living(setup: &Setup, state: &State, place: Place) -> bool {
    !place.silent && hears(setup, state, place.client.into())
}

pub(crate) fn end(setup: &Setup, state: &mut State, client: usize, end: End) -> Option<Violation> {
    let leaves = match end {
        End::Leave => !setup.leaves_out(Rule::LeaveLeavesQueue),
        _ => !setup.leaves_out(Rule::ReleaseLeavesQueue),
    };
    if let Some(index) = state.data.queue.find(client)
        && leaves
    {
        state.data.queue.remove(index);
    }
    let lock = &mut state.data.lock;
    let mut broken = None;
    if let End::Reserve(grant) = end {
        let same = is_same_tenure(setup, *lock, grant);
        if lock.is_of(client) && (same || setup.leaves_out(Rule::Tenure)) {
            lock.kind = Kind::Reserved;
            broken = (!is_tenure(*lock, grant)).then_some(Violation::ReservedForNobody);
        }
    } else if lock.is_of(client)
        || setup.leaves_out(Rule::EndCompares) && lock.kind != Kind::Reserved
    {
        *lock = Lock::default();
    }
    if !setup.leaves_out(Rule::EndSettles) {
        let next = settle(setup, state, client);
        broken = broken.or(next);
    }
    let queued = state.data.queue.find(client).map(|_| Violation::QueuedAfterItsEnd);
    broken.or(queued).or_else(|| free_beside_a_waiter(setup, state))
}

/// The lock of a plain claim has the token 0 until a heartbeat writes it.
pub(crate) fn is_same_tenure(setup: &Setup, lock: Lock, grant: Grant) -> bool {
    let is_smaller = grant.token < lock.grant.token && !setup.leaves_out(Rule::TokenNamesTenure);
    lock.grant.number == grant.number && !is_smaller
}

/// `SET NX` sets each number once, and scripts set each token once.
pub(crate) fn is_tenure(lock: Lock, grant: Grant) -> bool {
    match (lock.grant.plain, grant.plain) {
        (true, true) => lock.grant.number == grant.number,
        (false, false) => lock.grant.token == grant.token,
        _ => false,
    }
}

pub(crate) fn next_token(setup: &Setup, state: &mut State) -> u8 {
    let least = if setup.leaves_out(Rule::TimeAfterLoss) { 0 } else { state.time };
    state.data.stream = state.data.stream.max(least) + 1;
    state.time = state.time.max(state.data.stream);
    state.data.stream
}

pub(crate) fn follow(state: &mut State, client: usize, token: u8) {
    for (other, grant) in state.grants_mut() {
        if other != client && grant.token < token {
            grant.followed = true;
        }
    }
}
