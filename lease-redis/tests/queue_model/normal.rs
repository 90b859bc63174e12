//! Clears values that have no effect any more, so that fewer states differ.

use crate::setup::{Clocks, Counts, Rule, Setup, Skip};
use crate::state::{
    Beat, BeatPhase, Client, End, Grant, Kind, Lock, MOST_REQUESTS, News, Phase, State,
};

pub(crate) fn normalize(setup: &Setup, state: &mut State) {
    for place in 0..setup.clients {
        forget_news(setup, &mut state.clients[place], setup.roles[place].beats);
        forget_beats(setup, &mut state.clients[place]);
        forget_client(setup, state, place);
        forget_end(setup, state, place);
        forget_handed(setup, &mut state.clients[place], place);
        forget_lock(setup, state, place);
        forget_sends(setup, state, place);
        if setup.clocks == Clocks::Right {
            renumber_sends(state, place);
        }
    }
    for data in state.all_data_mut() {
        if data.lock.kind == Kind::Absent {
            data.lock = Lock::default();
        }
        let places = data.queue.places_mut();
        let arrivals: Vec<u8> = places.iter().map(|place| place.arrival).collect();
        for place in places {
            let earlier = arrivals.iter().filter(|other| **other < place.arrival);
            place.arrival = u8::try_from(earlier.count()).unwrap();
        }
    }
    if !setup.exact_tokens {
        renumber_tokens(state);
    }
    for client in &mut state.clients {
        client.news.sort_unstable_by(|one, other| other.cmp(one));
    }
}

fn forget_news(setup: &Setup, client: &mut Client, beats: u8) {
    let waits = client.phase == Phase::Waiting;
    let right = setup.clocks == Clocks::Right && setup.counts == Counts::NamedSend;
    for news in &mut client.news {
        let number = usize::from(news.grant.number);
        let late = number > 0 && right && client.sent[number - 1] == 0;
        // Only a heartbeat can confirm a grant after its deadline.
        let useless = late && client.beaten >= beats && !setup.leaves_out(Rule::DeadlineCheck);
        if !waits || useless {
            *news = News::default();
        }
    }
}

fn forget_beats(setup: &Setup, client: &mut Client) {
    let (waits, holds) = (client.phase == Phase::Waiting, client.phase == Phase::Holding);
    let right = setup.clocks == Clocks::Right;
    for beat in &mut client.beats {
        let needed = match beat.phase {
            BeatPhase::Nothing => false,
            // With wrong clocks, a heartbeat without a holder has no effect.
            BeatPhase::Sent => right || waits || holds || setup.leaves_out(Rule::Tenure),
            BeatPhase::Extended => (waits || holds && right) && (!right || beat.sent > 0),
        };
        if !needed {
            *beat = Beat::default();
        }
    }
}

fn forget_client(setup: &Setup, state: &mut State, place: usize) {
    let queued = state.all_data().any(|data| data.queue.find(place).is_some());
    let client = &mut state.clients[place];
    if client.phase != Phase::Holding {
        (client.grant, client.deadline) = (Grant::default(), 0);
    }
    let is_over = matches!(client.phase, Phase::HandedOver | Phase::Over);
    if !setup.leaves_out(Rule::NewNonceAfterEnd) && (is_over || client.phase == Phase::Holding) {
        client.asked = 0;
        if is_over {
            client.beaten = 0;
        }
    }
    if client.phase != Phase::Waiting {
        client.floor = Default::default();
    }
    let may_be_queued = queued || client.flying != 0 || client.phase == Phase::Waiting;
    if setup.skip == Skip::Never || !may_be_queued && !setup.leaves_out(Rule::SkipInOneScript) {
        client.deaf = false;
    }
}

/// While other clients wait, the last request of a nonce could grant the key to a waiter.
fn forget_end(setup: &Setup, state: &mut State, place: usize) {
    let finds = |state: &State| {
        let mut data = state.all_data();
        data.any(|data| data.lock.is_of(place) || data.queue.find(place).is_some())
    };
    let waited = state.clients.iter().enumerate().any(|(other, client)| {
        let queued = state.all_data().any(|data| data.queue.find(other).is_some());
        queued || other != place && (client.flying != 0 || client.phase == Phase::Waiting)
    });
    let kept = setup.leaves_out(Rule::EndCompares) || setup.leaves_out(Rule::NewNonceAfterEnd);
    if state.clients[place].flying == 0 && !finds(state) && !waited && !kept {
        state.clients[place].end = End::Nothing;
    }
}

/// A request that adopts the grant may still arrive or be sent.
fn forget_handed(setup: &Setup, client: &mut Client, place: usize) {
    let may_ask = matches!(client.phase, Phase::Idle | Phase::Waiting);
    let adopts = setup.roles[place].adopts.is_some();
    if adopts && !may_ask && client.flying == 0 && client.handed.number != 0 {
        // A mark shows that a grant was handed over, so that no second hand-over follows.
        client.handed = Grant { number: u8::MAX, ..Grant::default() };
    }
}

/// A request may still name the tenure of a client that has ended.
fn forget_lock(setup: &Setup, state: &mut State, place: usize) {
    let client = state.clients[place];
    let beats = client.beats.iter().any(|beat| beat.phase == BeatPhase::Sent);
    let live = matches!(client.phase, Phase::Waiting | Phase::Holding | Phase::Idle);
    let adopted = setup.roles.iter().any(|role| role.adopts == Some(place));
    let reserves = matches!(client.end, End::Reserve(_));
    for data in state.all_data_mut() {
        if usize::from(data.lock.client) != place || live {
            continue;
        }
        if !beats {
            data.lock.beat = 0;
        }
        if !beats && !adopted && !reserves && !setup.leaves_out(Rule::NewNonceAfterEnd) {
            data.lock.grant = Grant::default();
        }
    }
}

fn forget_sends(setup: &Setup, state: &mut State, place: usize) {
    let client = state.clients[place];
    for number in 1..=MOST_REQUESTS {
        let waits = client.phase == Phase::Waiting;
        let told = client.news.iter().any(|news| news.grant.number == number);
        let named = state.all_data().any(|data| {
            let queued = data.queue.find(place);
            let queued = queued.is_some_and(|at| data.queue.places()[at].number == number);
            let locked = data.lock.is_held_by(place) && data.lock.grant.number == number;
            queued || waits && locked
        });
        let flies = client.flying & 1 << number != 0;
        let all = setup.counts != Counts::NamedSend && waits;
        if !(named || flies || waits && told || all) {
            state.clients[place].sent[usize::from(number) - 1] = 0;
        }
    }
}

fn renumber_sends(state: &mut State, place: usize) {
    let mut used = 0u64;
    state.change_sends(place, |sent| used |= 1 << *sent);
    state.change_sends(place, |sent| {
        let smaller = used & ((1 << *sent) - 1) & !1;
        *sent = if *sent == 0 { 0 } else { u8::try_from(smaller.count_ones() + 1).unwrap() };
    });
}

/// Only the order of tokens matters. A later token is larger than all these tokens.
fn renumber_tokens(state: &mut State) {
    let mut used = 0u64;
    state.grants_mut().for_each(|(_, grant)| used |= 1 << grant.token);
    used &= !1;
    for (_, grant) in state.grants_mut() {
        let smaller = used & ((1 << grant.token) - 1);
        grant.token = u8::try_from(smaller.count_ones() + 1).unwrap();
    }
    for client in &mut state.clients {
        client.floor = Default::default();
    }
    state.accepted = 0;
    for data in state.all_data_mut() {
        data.stream = 0;
    }
    state.data.stream = u8::try_from(used.count_ones()).unwrap();
    state.time = state.data.stream;
}
