//! The store applies the messages that arrive.

use super::model::Steps;
use super::setup::{Rule, Setup};
use super::state::{ClaimId, Message, Phase, State, Violation};
use super::step::Step;

impl Steps<'_> {
    pub(crate) fn deliver(&mut self, name: u8) {
        let (setup, index) = (self.setup, usize::from(name));
        let worker = self.state.workers[index];
        if worker.row.has_lessee && worker.sent_beat > worker.row.beat {
            self.then(Step::BeatArrives(name), |state| {
                state.workers[index].row.beat = worker.sent_beat;
            });
        }
        for number in (0..).take(setup.claims[index]) {
            let id = ClaimId { worker: name, number };
            let claim = worker.claims[usize::from(number)];
            // `normalize` has cleared a claim without a session, since none of its messages has an
            // effect.
            if claim.phase == Phase::Unused || claim.session == 0 {
                continue;
            }
            self.then_checked(Step::Arrives(id, "the request"), |state| {
                apply_claim(setup, state, id)
            });
            if claim.release != Message::Unsent {
                self.then(Step::Arrives(id, "the release"), |state| {
                    apply_release(setup, state, id);
                });
            }
            if claim.checkpoint == Message::Sent {
                self.then_checked(Step::Arrives(id, "the checkpoint"), |state| {
                    apply_checkpoint(setup, state, id)
                });
            }
        }
    }
}

/// The shard must have the token that the claim names. The shard must also be free, or held under
/// the session whose end the claim proves.
fn apply_claim(setup: &Setup, state: &mut State, id: ClaimId) -> Option<Violation> {
    let claim = *state.claim(id);
    let shard = state.shards[usize::from(claim.shard)];
    if shard.holder == Some(id) {
        state.claim_mut(id).granted = shard.token;
        return None;
    }
    let parent = shard.holder.map(|holder| state.parent(holder));
    let is_free = match (parent, claim.former) {
        (None, _) => true,
        (Some(parent), Some(former)) if setup.leaves_out(Rule::ParentToken) => {
            parent.worker == former.worker
        }
        (Some(parent), former) if setup.leaves_out(Rule::ProofBeforeClaim) => {
            let row = &state.workers[usize::from(parent.worker)].row;
            former == Some(parent)
                && (row.token != parent.token || !row.has_lessee || row.is_expired())
        }
        (parent, former) => parent == former,
    };
    let is_as_seen = shard.token == claim.seen || setup.leaves_out(Rule::ClaimNamesToken);
    if !is_free || !is_as_seen {
        state.claim_mut(id).is_refused = true;
        return None;
    }
    let token =
        if setup.leaves_out(Rule::TokenGrows) { shard.token.max(1) } else { shard.token + 1 };
    let is_larger = token > shard.token;
    let shard = &mut state.shards[usize::from(claim.shard)];
    (shard.token, shard.holder) = (token, Some(id));
    state.claim_mut(id).granted = token;
    (!is_larger).then_some(Violation::TokenNotLarger)
}

fn apply_release(setup: &Setup, state: &mut State, id: ClaimId) {
    let claim = *state.claim(id);
    let shard = state.shards[usize::from(claim.shard)];
    let is_meant = match shard.holder {
        Some(holder) if setup.leaves_out(Rule::ReleaseNamesGrant) => {
            state.parent(holder) == state.parent(id)
        }
        holder => holder == Some(id) && shard.token == claim.granted,
    };
    if is_meant {
        state.shards[usize::from(claim.shard)].holder = None;
    }
    state.claim_mut(id).release = Message::Answered;
}

fn apply_checkpoint(setup: &Setup, state: &mut State, id: ClaimId) -> Option<Violation> {
    let claim = *state.claim(id);
    let shard = state.shards[usize::from(claim.shard)];
    let is_current = shard.holder == Some(id);
    let is_applied = match shard.holder {
        Some(holder) if setup.leaves_out(Rule::CheckpointNamesGrant) => holder.worker == id.worker,
        _ => is_current,
    };
    (is_applied && !is_current).then_some(Violation::CheckpointNotFenced)
}
