//! The actions of a process.

use super::setup::{Rule, Setup};
use super::state::{Phase, Process, Release, Request, State, Subscription};
use super::step::{Step, Steps};

impl Steps<'_> {
    pub(crate) fn act(&mut self, place: usize) {
        let process = self.state.processes[place];
        match process.phase {
            Phase::Idle => self.change(place, " asks", |_, process| {
                process.phase = Phase::Asking;
                send(process, Request::Obtain);
            }),
            Phase::Asking | Phase::Waiting => {
                self.use_answer(place);
                self.look(place);
                self.change(place, " gives up", |_, process| {
                    process.leave(Phase::Over);
                    process.release = Release::Sent;
                });
            }
            Phase::Holding => {
                self.change(place, " sends a release", |_, process| {
                    (process.phase, process.release) = (Phase::Over, Release::Sent);
                });
                self.change(place, " sends a release with a reservation", |_, process| {
                    (process.phase, process.release) = (Phase::Over, Release::Reserving);
                });
            }
            Phase::Over => (),
        }
        self.follow_subscription(place);
        if process.message {
            self.change(place, " receives the message", |setup, process| {
                process.message = false;
                if process.current == 0 || !setup.leaves_out(Rule::MessageDuringLook) {
                    process.must_look = true;
                }
            });
        }
    }

    fn use_answer(&mut self, place: usize) {
        let process = self.state.processes[place];
        let Some(slot) = usize::from(process.current).checked_sub(1) else { return };
        let refuse: fn(&Setup, &mut Process) = |setup, process| {
            process.current = 0;
            if process.phase == Phase::Asking {
                process.phase = Phase::Waiting;
                process.subscription = Subscription::Sent;
                process.must_look = setup.leaves_out(Rule::ConfirmedBeforeMark);
            }
        };
        match process.requests[slot] {
            Request::Granted => {
                self.change(place, " has the key", |_, process| process.leave(Phase::Holding));
            }
            Request::Held => self.change(place, " is refused", refuse),
            _ => (),
        }
        self.change(place, " stops waiting for the answer", |setup, process| {
            process.must_look |= process.phase == Phase::Waiting;
            refuse(setup, process);
        });
    }

    fn look(&mut self, place: usize) {
        let process = self.state.processes[place];
        let confirmed = process.subscription == Subscription::Confirmed
            || self.setup.leaves_out(Rule::ConfirmedBeforeMark);
        if process.sleeps() && process.timed {
            self.change(place, "'s time left has passed", |_, process| process.must_look = true);
        }
        if process.phase == Phase::Waiting
            && confirmed
            && process.must_look
            && process.current == 0
            && process.asked < self.setup.requests
        {
            self.change(place, " asks again", |_, process| {
                (process.must_look, process.timed) = (false, false);
                send(process, Request::ObtainOrMark);
            });
        }
    }

    fn follow_subscription(&mut self, place: usize) {
        let process = self.state.processes[place];
        let cuttable =
            !matches!(process.subscription, Subscription::Nothing | Subscription::Broken);
        if cuttable && self.state.cuts > 0 {
            self.then(Step(Some(place), "'s subscription breaks"), |state| {
                state.cuts -= 1;
                cut(&mut state.processes[place]);
            });
        }
        match process.subscription {
            Subscription::Nothing | Subscription::Confirmed => (),
            Subscription::Sent => self.change(place, "'s SUBSCRIBE arrives", |_, process| {
                process.subscription = Subscription::Active;
            }),
            Subscription::Active => {
                self.change(place, "'s subscription is confirmed", |setup, process| {
                    process.subscription = Subscription::Confirmed;
                    process.must_look |= !setup.leaves_out(Rule::ConfirmedBeforeMark);
                });
            }
            Subscription::Broken => self.change(place, " subscribes again", |_, process| {
                process.subscription = Subscription::SentAgain;
            }),
            Subscription::SentAgain => {
                self.change(place, "'s second SUBSCRIBE arrives", |_, process| {
                    process.subscription = Subscription::ActiveAgain;
                });
            }
            Subscription::ActiveAgain => {
                self.change(place, "'s subscription is renewed", |setup, process| {
                    process.subscription = Subscription::Confirmed;
                    process.must_look |= !setup.leaves_out(Rule::LookAfterRenewal);
                });
            }
        }
    }

    fn change(
        &mut self,
        place: usize,
        step: &'static str,
        change: impl FnOnce(&Setup, &mut Process),
    ) {
        let setup = self.setup;
        self.then(Step(Some(place), step), |state: &mut State| {
            change(setup, &mut state.processes[place]);
        });
    }
}

fn send(process: &mut Process, request: Request) {
    process.requests[usize::from(process.asked)] = request;
    process.asked += 1;
    process.current = process.asked;
}

/// Messages on their way to the process are also lost.
pub(crate) fn cut(process: &mut Process) {
    if process.subscription != Subscription::Nothing {
        (process.subscription, process.message) = (Subscription::Broken, false);
    }
}
