//! Expiry, and loss of data.

use super::model::Steps;
use super::setup::{Clocks, Setup, Write};
use super::state::{Kind, RequestPhase, State, Value};
use super::step::Step;

impl Steps<'_> {
    pub(crate) fn expire(&mut self, key: usize) {
        let value = self.state.keys[key].value;
        // No claim relies on a reservation.
        let may_expire = match value.kind {
            Kind::Absent => false,
            Kind::Held | Kind::Evicted => !self.has_right_clocks() || value.expiry == 0,
            Kind::Reserved => true,
        };
        if !may_expire {
            return;
        }
        let right = self.setup.clocks == Clocks::Right && value.kind != Kind::Reserved;
        self.then(Step::Expires(key), |state| {
            let key = &mut state.keys[key];
            key.value = Value::default();
            // The replica's value was set earlier, with the same ttl. So it has also expired.
            if right && key.lagging.kind != Kind::Reserved {
                key.lagging = Value::default();
            }
        });
    }

    pub(crate) fn lose_data(&mut self) {
        let setup = self.setup;
        if self.state.flushes > 0 {
            self.then(Step::Flush, |state| {
                state.flushes -= 1;
                clear(state);
            });
        }
        if self.state.restarts > 0 {
            self.then(Step::Restart, |state| {
                state.restarts -= 1;
                clear(state);
                cut_connections(setup, state);
            });
        }
        if self.state.promotions > 0 && self.state.lagging.is_none() {
            self.then(Step::ReplicaLags, |state| {
                state.lagging = Some(state.stream);
                for key in &mut state.keys {
                    key.lagging = key.value;
                }
            });
        }
        if let Some(stream) = self.state.lagging {
            self.then(Step::Promotion, |state| {
                (state.stream, state.lagging) = (stream, None);
                state.promotions -= 1;
                for key in &mut state.keys {
                    key.value = key.lagging;
                }
                cut_connections(setup, state);
            });
        }
    }
}

fn clear(state: &mut State) {
    state.stream = 0;
    for key in &mut state.keys {
        key.value = Value::default();
    }
}

/// A pipeline whose connection was cut has no reply.
fn cut_connections(setup: &Setup, state: &mut State) {
    if setup.write != Write::PipelineOfOneRun {
        return;
    }
    for claim in &mut state.claims {
        for request in &mut claim.requests {
            if matches!(request.phase, RequestPhase::Set | RequestPhase::SetAgain) {
                request.phase = RequestPhase::Nothing;
            }
        }
    }
}
