//! The server's handling of requests, expiry, and loss of data.

use super::process::cut;
use super::setup::Rule;
use super::state::{Kind, NOBODY, Phase, Release, Request, State, Value};
use super::step::{Step, Steps};

impl Steps<'_> {
    pub(crate) fn deliver(&mut self, place: usize) {
        let process = self.state.processes[place];
        for (slot, request) in process.requests.into_iter().enumerate() {
            match request {
                Request::Obtain => self.deliver_request(place, slot, false),
                Request::ObtainOrMark => self.deliver_request(place, slot, true),
                Request::Mark => self.deliver_mark(place, slot),
                Request::Nothing | Request::Granted | Request::Held => (),
            }
        }
        if process.release != Release::Nothing {
            self.deliver_release(place, process.release);
        }
        let value = self.state.value;
        let holds = value.kind == Kind::Held && usize::from(value.holder) == place;
        if holds && self.state.rewrites > 0 {
            self.rewrite(place, "'s heartbeat arrives", Kind::Held, Rule::BeatKeepsMark);
            self.rewrite(place, "'s grant is adopted", Kind::Held, Rule::AdoptionKeepsMark);
            self.rewrite(place, "'s eviction arrives", Kind::Evicted, Rule::EvictionKeepsMark);
        }
    }

    fn deliver_request(&mut self, place: usize, slot: usize, marks: bool) {
        let apart = self.setup.leaves_out(Rule::MarkInOneScript);
        self.then(Step(Some(place), "'s request arrives"), |state| {
            let process = &mut state.processes[place];
            process.unseen = false;
            let own = state.value.kind == Kind::Held && usize::from(state.value.holder) == place;
            process.requests[slot] = if state.value.kind == Kind::Absent {
                let holder = u8::try_from(place).unwrap();
                state.value = Value { kind: Kind::Held, holder, mark: false };
                Request::Granted
            } else if own {
                Request::Granted
            } else if marks && apart {
                Request::Mark
            } else {
                state.value.mark |= marks;
                Request::Held
            };
        });
    }

    fn deliver_mark(&mut self, place: usize, slot: usize) {
        self.then(Step(Some(place), "'s mark arrives"), |state| {
            if state.value.kind == Kind::Absent {
                state.value = Value { kind: Kind::Held, holder: NOBODY, mark: true };
            }
            state.value.mark = true;
            state.processes[place].requests[slot] = Request::Held;
        });
    }

    fn deliver_release(&mut self, place: usize, release: Release) {
        let setup = self.setup;
        self.then(Step(Some(place), "'s release arrives"), |state| {
            state.processes[place].release = Release::Nothing;
            let occupied = matches!(state.value.kind, Kind::Held | Kind::Evicted);
            if !occupied || usize::from(state.value.holder) != place {
                return;
            }
            let reserves = release == Release::Reserving;
            let publishes = !reserves || !setup.leaves_out(Rule::ReservationPublishes);
            for process in &mut state.processes {
                process.message |= state.value.mark && process.is_subscribed() && publishes;
                process.unseen = true;
            }
            let kind = if reserves { Kind::Reserved } else { Kind::Absent };
            state.value = Value { kind, mark: false, ..state.value };
        });
    }

    fn rewrite(&mut self, place: usize, step: &'static str, kind: Kind, rule: Rule) {
        let keeps = !self.setup.leaves_out(rule);
        self.then(Step(Some(place), step), |state| {
            state.rewrites -= 1;
            state.value.kind = kind;
            state.value.mark &= keeps;
        });
    }

    pub(crate) fn lose_value(&mut self) {
        let value = self.state.value;
        if value.kind != Kind::Absent {
            self.then(Step(None, "the key expires"), free);
        }
        if self.state.losses == 0 || value.kind == Kind::Absent {
            return;
        }
        self.then(Step(None, "the server loses all data"), |state| {
            state.losses -= 1;
            free(state);
        });
        self.then(Step(None, "a replica without the value takes over"), |state| {
            state.losses -= 1;
            free(state);
            state.processes.iter_mut().for_each(cut);
        });
        self.then(Step(None, "a replica without the mark takes over"), |state| {
            state.losses -= 1;
            state.value.mark = false;
            state.processes.iter_mut().for_each(cut);
        });
    }
}

/// The time left that waiters have received passes by itself.
fn free(state: &mut State) {
    state.value = Value::default();
    for process in &mut state.processes {
        let told = usize::from(process.current)
            .checked_sub(1)
            .is_none_or(|slot| process.requests[slot] == Request::Held);
        process.timed |= process.phase == Phase::Waiting && told;
        process.unseen = true;
    }
}
