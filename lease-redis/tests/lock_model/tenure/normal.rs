//! Clears values that have no effect any more, so that fewer states differ.

use super::setup::{Again, Clocks, Role, Rule, Setup};
use super::state::{
    Beat, BeatPhase, Claim, Grant, Kind, Phase, Release, Request, RequestPhase, State, Value,
    change_sends,
};

pub(crate) fn normalize(setup: &Setup, state: &mut State) {
    for (place, role) in setup.roles.iter().enumerate().take(setup.claims) {
        forget_answers(setup, &mut state.claims[place]);
        forget_end(setup, state, place);
        forget_release(setup, state, place);
        let claim = &mut state.claims[place];
        forget_handed(*role, claim);
        if setup.clocks == Clocks::Right {
            renumber_sends(claim, &mut state.keys[role.key], place);
        }
    }
    for key in &mut state.keys {
        for value in [&mut key.value, &mut key.lagging] {
            if value.kind == Kind::Absent {
                *value = Value::default();
            }
        }
    }
    for (batcher, last) in (1..).zip(&mut state.batches) {
        let claims = state.claims.iter().zip(&setup.roles);
        let claims = claims.filter(|(_, role)| role.batcher == batcher);
        let requests = claims.flat_map(|(claim, _)| claim.requests);
        *last = requests.map(|request| request.batch).max().unwrap_or(0);
    }
    if !setup.exact_tokens {
        renumber_tokens(state);
    }
}

fn forget_answers(setup: &Setup, claim: &mut Claim) {
    let (asks, holds) = (claim.phase == Phase::Asking, claim.phase == Phase::Holding);
    let right = setup.clocks == Clocks::Right;
    let revived = setup.leaves_out(Rule::DeadlineIsFinal)
        && claim.phase == Phase::Over
        && claim.release == Release::Nothing;
    for request in &mut claim.requests {
        let answered = matches!(request.phase, RequestPhase::Granted | RequestPhase::Again);
        if answered && !asks || request.phase == RequestPhase::Nothing {
            let sent = if asks && setup.again == Again::NamedSend { request.sent } else { 0 };
            *request = Request { sent, ..Request::default() };
        }
        if matches!(request.phase, RequestPhase::Granted | RequestPhase::Again) {
            request.batch = 0;
        }
    }
    for beat in &mut claim.beats {
        let needed = match beat.phase {
            BeatPhase::Nothing => false,
            // With wrong clocks, a heartbeat without a holder has no effect.
            BeatPhase::Sent => right || asks || holds || setup.leaves_out(Rule::RequestNumber),
            BeatPhase::Extended => {
                (asks || holds && right || revived)
                    && (!right || beat.sent > 0 || setup.leaves_out(Rule::DeadlineOfExtension))
            }
        };
        if !needed {
            *beat = Beat::default();
        }
    }
}

fn forget_end(setup: &Setup, state: &mut State, place: usize) {
    let claim = &mut state.claims[place];
    if claim.phase != Phase::Holding {
        (claim.grant, claim.deadline) = (Grant::default(), 0);
    }
    let asks_again = setup.leaves_out(Rule::NewNonceAfterRelease);
    if !matches!(claim.phase, Phase::Idle | Phase::Asking) && !asks_again {
        claim.asked = 0;
    }
    if matches!(claim.phase, Phase::HandedOver | Phase::Over) && !asks_again {
        claim.beaten = 0;
        if claim.beats.iter().all(|beat| beat.phase != BeatPhase::Sent) {
            let key = &mut state.keys[setup.roles[place].key];
            for value in [&mut key.value, &mut key.lagging] {
                if usize::from(value.claim) == place {
                    value.beat = 0;
                }
            }
        }
    }
}

fn forget_release(setup: &Setup, state: &mut State, place: usize) {
    let key = state.keys[setup.roles[place].key];
    let claim = &mut state.claims[place];
    let finds = |value: Value| value.kind != Kind::Absent && usize::from(value.claim) == place;
    let may_come = claim.requests.iter().any(|request| request.phase == RequestPhase::Sent);
    let kept = setup.leaves_out(Rule::ReleaseCompares)
        || setup.leaves_out(Rule::NewNonceAfterRelease)
        || setup.leaves_out(Rule::DeadlineIsFinal);
    if !finds(key.value) && !finds(key.lagging) && !may_come && !kept {
        claim.release = Release::Nothing;
    }
}

/// A request that adopts the grant may still arrive or be sent.
fn forget_handed(role: Role, claim: &mut Claim) {
    let may_ask = matches!(claim.phase, Phase::Idle | Phase::Asking);
    let sent = claim.requests.iter().any(|request| request.phase == RequestPhase::Sent);
    if role.adopts.is_some() && !may_ask && !sent && claim.handed.request != 0 {
        // A mark shows that a grant was handed over, so that no second hand-over follows.
        claim.handed = Grant { request: u8::MAX, ..Grant::default() };
    }
}

fn renumber_sends(claim: &mut Claim, key: &mut super::state::Key, place: usize) {
    let mut used = 0u64;
    change_sends(claim, key, place, |sent| used |= 1 << *sent);
    change_sends(claim, key, place, |sent| {
        let smaller = used & ((1 << *sent) - 1) & !1;
        *sent = if *sent == 0 { 0 } else { u8::try_from(smaller.count_ones() + 1).unwrap() };
    });
}

/// Only the order of tokens matters. A later token is larger than all these tokens.
fn renumber_tokens(state: &mut State) {
    let mut used = 0u64;
    for claim in &state.claims {
        for grant in claim.grants() {
            used |= 1 << grant.token;
        }
    }
    used &= !1;
    for claim in &mut state.claims {
        for grant in claim.grants_mut().filter(|grant| grant.token != 0) {
            let smaller = used & ((1 << grant.token) - 1);
            grant.token = u8::try_from(smaller.count_ones() + 1).unwrap();
        }
        for request in &mut claim.requests {
            request.floor = 0;
        }
    }
    for key in &mut state.keys {
        key.accepted = 0;
    }
    state.stream = u8::try_from(used.count_ones()).unwrap();
    state.time = state.stream;
    state.lagging = state.lagging.map(|_| 0);
}
