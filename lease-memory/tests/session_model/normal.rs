//! Converts equivalent states to one form, so that a search visits them once.

use super::model::Order;
use super::setup::Setup;
use super::state::{Claim, ClaimId, Message, Phase, State};

/// A message of a claim that is over has no effect once its shard has a larger token than the claim names.
/// If a rule is left out, the message may have an effect.
pub(crate) fn normalize(setup: &Setup, state: &mut State) {
    if setup.without.is_some() {
        return;
    }
    let shards = state.shards;
    for (worker, name) in state.workers.iter_mut().zip(0..) {
        for (claim, number) in worker.claims.iter_mut().zip(0..) {
            let shard = &shards[usize::from(claim.shard)];
            let holds = shard.holder == Some(ClaimId { worker: name, number });
            if claim.phase == Phase::Over && !holds && claim.seen < shard.token {
                *claim = Claim { phase: Phase::Over, ..Claim::default() };
            }
            if claim.phase == Phase::Unused {
                break;
            }
        }
        // Claims without an effect come first, so that two states do not differ only by these
        // places.
        sort_spent_first(name, &mut worker.claims, &mut state.shards);
        if !worker.is_live {
            worker.acked_beat = 0;
        }
        if !worker.row.has_lessee {
            (worker.row.beat, worker.row.passed, worker.sent_beat) = (0, 0, 0);
        }
    }
}

fn sort_spent_first(worker: u8, claims: &mut [Claim], shards: &mut [super::state::Shard]) {
    let spent = Claim { phase: Phase::Over, ..Claim::default() };
    for place in 1..claims.len() {
        if claims[place] != spent {
            continue;
        }
        let mut place = place;
        while place > 0 && claims[place - 1] != spent {
            claims.swap(place, place - 1);
            let (low, high) = (u8::try_from(place - 1).unwrap(), u8::try_from(place).unwrap());
            for shard in &mut *shards {
                if shard.holder == Some(ClaimId { worker, number: low }) {
                    shard.holder = Some(ClaimId { worker, number: high });
                }
            }
            place -= 1;
        }
    }
}

/// The worker at `place` was at `order[place]` before.
pub(crate) fn renamed(state: &State, (workers, shards): &Order) -> State {
    let mut names = [0; super::state::WORKERS];
    for (new, old) in (0..).zip(workers) {
        names[*old] = new;
    }
    let mut renamed = *state;
    renamed.workers = workers.map(|old| state.workers[old]);
    renamed.shards = shards.map(|old| state.shards[old]);
    for shard in &mut renamed.shards {
        if let Some(holder) = &mut shard.holder {
            holder.worker = names[usize::from(holder.worker)];
        }
    }
    for claim in renamed.workers.iter_mut().flat_map(|worker| &mut worker.claims) {
        if let Some(former) = &mut claim.former {
            former.worker = names[usize::from(former.worker)];
        }
        // There are at most two shards, so another order exchanges them.
        let is_used = claim.phase != Phase::Unused && *claim != spent();
        if is_used && shards[0] != 0 {
            claim.shard = 1 - claim.shard;
        }
    }
    renamed
}

fn spent() -> Claim {
    Claim { phase: Phase::Over, release: Message::Unsent, ..Claim::default() }
}
