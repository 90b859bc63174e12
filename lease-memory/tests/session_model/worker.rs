//! The actions of a worker: on its session and on its claims.

use super::model::Steps;
use super::setup::{Clocks, Rule};
use super::state::{Claim, ClaimId, Message, Phase, Session, Worker};
use super::step::{Action, Step};

impl Steps<'_> {
    pub(crate) fn change_session(&mut self, name: u8) {
        let index = usize::from(name);
        let worker = self.state.workers[index];
        let row = worker.row;
        let can_obtain = !row.has_lessee || row.is_expired();
        if !worker.is_live && can_obtain && row.token < self.setup.sessions[index] {
            let keeps_shards = self.setup.leaves_out(Rule::NewSessionLosesShards);
            self.then(Step::Worker(name, Action::ObtainsSession), |state| {
                let worker = &mut state.workers[index];
                worker.obtain(keeps_shards);
            });
        }
        if worker.is_live {
            let keeps_shards = self.setup.leaves_out(Rule::NewSessionLosesShards);
            self.then(Step::Worker(name, Action::LosesSession), |state| {
                let worker = &mut state.workers[index];
                worker.is_live = false;
                if !keeps_shards {
                    worker.forget_claims();
                }
            });
        }
        if worker.is_live && worker.sent_beat < self.setup.beats {
            self.then(Step::Worker(name, Action::SendsBeat), |state| {
                state.workers[index].sent_beat += 1;
            });
        }
        // The answer to the last heartbeat arrives before the deadline, and moves the deadline.
        if worker.is_live && row.has_lessee && row.beat > worker.acked_beat {
            self.then(Step::Worker(name, Action::AcceptsBeat), |state| {
                state.workers[index].acked_beat = row.beat;
            });
        }
        self.expire(name, &worker);
    }

    fn expire(&mut self, name: u8, worker: &Worker) {
        let (index, row) = (usize::from(name), worker.row);
        // The deadline counts from the send of the last answered heartbeat. The expiry counts from
        // the arrival of the last applied heartbeat. So the deadline comes first.
        let relies_on_it = worker.is_live && worker.acked_beat <= row.passed;
        let may_pass = !relies_on_it || self.setup.clocks == Clocks::Wrong;
        if row.has_lessee && row.passed <= row.beat && may_pass {
            self.then(Step::Expires(name), |state| state.workers[index].row.passed += 1);
        }
        if row.has_lessee && row.is_expired() {
            self.then(Step::Ends(name), |state| state.workers[index].row.has_lessee = false);
        }
        // A worker may release a session on which it no longer relies.
        if row.has_lessee && !worker.is_live {
            self.then(Step::SessionReleased(name), |state| {
                state.workers[index].row.has_lessee = false;
            });
        }
    }

    pub(crate) fn act(&mut self, name: u8) {
        let worker = self.state.workers[usize::from(name)];
        if !worker.is_live {
            return;
        }
        for shard in (0..).take(self.setup.shards) {
            self.claim(name, &worker, shard);
        }
        for number in (0..).take(self.setup.claims[usize::from(name)]) {
            let id = ClaimId { worker: name, number };
            let claim = worker.claims[usize::from(number)];
            match claim.phase {
                Phase::Pending => self.accept_answer(id, &claim),
                Phase::Holding => self.use_grant(id, &claim),
                Phase::Releasing if claim.release == Message::Answered => {
                    self.then(Step::Claim(id, Action::AcceptsRelease), |state| {
                        state.claim_mut(id).phase = Phase::Over;
                    });
                }
                _ => (),
            }
            let is_unanswered = matches!(claim.phase, Phase::Pending | Phase::Releasing);
            if is_unanswered && self.setup.leaves_out(Rule::Settle) {
                self.then(Step::Claim(id, Action::GivesUp), |state| {
                    state.claim_mut(id).phase = Phase::Over;
                });
            }
        }
    }

    fn claim(&mut self, name: u8, worker: &Worker, number: u8) {
        let is_busy = |claim: &Claim| {
            claim.shard == number
                && matches!(claim.phase, Phase::Pending | Phase::Holding | Phase::Releasing)
        };
        let claims = &worker.claims[..self.setup.claims[usize::from(name)]];
        if claims.iter().any(is_busy) {
            return;
        }
        let Some(unused) = claims.iter().position(|claim| claim.phase == Phase::Unused) else {
            return;
        };
        let shard = self.state.shards[usize::from(number)];
        let former = shard.holder.map(|holder| self.state.parent(holder));
        if former.is_some_and(|session| !self.seems_ended(session)) {
            return;
        }
        let id = ClaimId { worker: name, number: u8::try_from(unused).unwrap() };
        let (session, seen) = (worker.row.token, shard.token);
        self.then(Step::Claims(id), |state| {
            let phase = Phase::Pending;
            *state.claim_mut(id) =
                Claim { phase, shard: number, session, seen, former, ..Claim::default() };
        });
    }

    fn seems_ended(&self, session: Session) -> bool {
        let row = &self.state.workers[usize::from(session.worker)].row;
        if self.setup.leaves_out(Rule::EndIsWritten) && row.passed > 0 {
            return true;
        }
        if self.setup.leaves_out(Rule::ParentToken) && (row.token > 1 || !row.has_lessee) {
            return true;
        }
        self.setup.leaves_out(Rule::ProofBeforeClaim)
            || self.setup.leaves_out(Rule::AbsenceProvesNothing)
            || self.state.has_ended(session)
    }

    fn accept_answer(&mut self, id: ClaimId, claim: &Claim) {
        if claim.granted > 0 {
            self.then(Step::Claim(id, Action::AcceptsGrant), |state| {
                state.claim_mut(id).phase = Phase::Holding;
            });
        }
        if claim.is_refused {
            self.then(Step::Claim(id, Action::AcceptsRefusal), |state| {
                state.claim_mut(id).phase = Phase::Over;
            });
        }
    }

    fn use_grant(&mut self, id: ClaimId, claim: &Claim) {
        if self.setup.checkpoints && claim.checkpoint == Message::Unsent {
            self.then(Step::Claim(id, Action::SendsCheckpoint), |state| {
                state.claim_mut(id).checkpoint = Message::Sent;
            });
        }
        self.then(Step::Claim(id, Action::Releases), |state| {
            let claim = state.claim_mut(id);
            (claim.phase, claim.release) = (Phase::Releasing, Message::Sent);
        });
    }
}

impl Worker {
    fn obtain(&mut self, keeps_shards: bool) {
        self.row.token += 1;
        (self.row.has_lessee, self.row.beat, self.row.passed) = (true, 0, 0);
        (self.is_live, self.sent_beat, self.acked_beat) = (true, 0, 0);
        if !keeps_shards {
            self.forget_claims();
        }
    }

    /// The messages of these claims may still arrive.
    fn forget_claims(&mut self) {
        for claim in &mut self.claims {
            if claim.phase != Phase::Unused {
                claim.phase = Phase::Over;
            }
        }
    }
}
