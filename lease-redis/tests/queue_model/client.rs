//! The actions of a client.

use crate::model::Steps;
use crate::setup::{Clocks, Counts, Rule, Setup};
use crate::state::{Beat, BeatPhase, Client, End, Grant, News, Phase, State};
use crate::step::{Action, Step};
use crate::violation::Violation;

impl Steps<'_> {
    pub(crate) fn act(&mut self, place: usize) {
        let client = self.state.clients[place];
        self.pass_deadline(place);
        if self.may_ask(place) {
            self.ask(place);
        }
        match client.phase {
            Phase::Idle | Phase::HandedOver | Phase::Over => (),
            Phase::Waiting => {
                for news in client.news.iter().filter(|news| **news != News::default()) {
                    self.use_news(place, *news);
                }
                self.accept_extensions(place);
                if self.setup.roles[place].leaves {
                    self.then(Step::Client(place, Action::Leaves, client.asked.into()), |state| {
                        let client = &mut state.clients[place];
                        (client.phase, client.end) = (Phase::Over, End::Leave);
                    });
                }
            }
            Phase::Holding => {
                if client.beaten < self.setup.roles[place].beats {
                    let number = usize::from(client.beaten) + 1;
                    self.then(Step::Client(place, Action::SendsBeat, number), |state| {
                        send_beat(self.setup, state, place, client.grant);
                    });
                }
                if self.has_right_clocks() {
                    self.accept_extensions(place);
                }
                self.end(place);
            }
        }
    }

    /// With wrong clocks, deadlines have no effect.
    fn pass_deadline(&mut self, place: usize) {
        if !self.has_right_clocks() || self.state.next_send(place) == 1 {
            return;
        }
        self.then(Step::Client(place, Action::DeadlinePasses, 1), |state| {
            let relied = state.clients[place].deadline > 0;
            state.change_sends(place, |sent| *sent = sent.saturating_sub(1));
            let client = &mut state.clients[place];
            if client.phase == Phase::Holding && relied && client.deadline == 0 {
                (client.phase, client.end) = (Phase::Over, End::Release);
            }
        });
    }

    fn may_ask(&self, place: usize) -> bool {
        let (client, role) = (self.state.clients[place], self.setup.roles[place]);
        let phase = match client.phase {
            Phase::Idle => role.adopts.is_none() || client.handed.number != 0,
            Phase::Waiting => true,
            Phase::Over => self.setup.leaves_out(Rule::NewNonceAfterEnd),
            Phase::Holding | Phase::HandedOver => false,
        };
        phase && client.asked < role.requests
    }

    fn ask(&mut self, place: usize) {
        let setup = self.setup;
        let number = self.state.clients[place].asked + 1;
        self.then(Step::Client(place, Action::Asks, number.into()), |state| {
            let sent = next_send(setup, state, place);
            let floor = state.accepted;
            let client = &mut state.clients[place];
            let index = usize::from(number) - 1;
            (client.sent[index], client.floor[index]) = (sent, floor);
            client.flying |= 1 << number;
            (client.asked, client.phase) = (number, Phase::Waiting);
        });
    }

    fn use_news(&mut self, place: usize, news: News) {
        let (setup, client, grant) = (self.setup, self.state.clients[place], news.grant);
        let number = grant.number.into();
        let sent = self.counted_from(place, news);
        if !self.is_late(sent) || setup.leaves_out(Rule::DeadlineCheck) {
            self.then_checked(Step::Client(place, Action::Accepts, number), |state| {
                let floor = state.clients[place].floor[number - 1];
                let low = (grant.token <= floor).then_some(Violation::TokensOutOfOrder);
                accept(setup, state, place, grant, sent).or(low)
            });
        }
        // A heartbeat decides whether the client has the lease, even after the deadline.
        if client.beaten < setup.roles[place].beats {
            self.then(Step::Client(place, Action::Confirms, number), |state| {
                send_beat(setup, state, place, grant);
            });
        }
    }

    fn counted_from(&self, place: usize, news: News) -> u8 {
        let client = self.state.clients[place];
        let sent = |number: u8| client.sent[usize::from(number) - 1];
        match self.setup.counts {
            Counts::NamedSend => sent(news.grant.number),
            Counts::AnsweredSend if news.answers != 0 => sent(news.answers),
            Counts::AnsweredSend | Counts::LastSend => sent(client.asked),
            Counts::Receipt => next_send(self.setup, &self.state, place),
        }
    }

    fn accept_extensions(&mut self, place: usize) {
        let (setup, client) = (self.setup, self.state.clients[place]);
        for slot in 0..client.beats.len() {
            let beat = client.beats[slot];
            if beat.phase != BeatPhase::Extended || self.is_late(beat.sent) {
                continue;
            }
            self.then_checked(Step::Client(place, Action::AcceptsExtension, slot + 1), |state| {
                let client = &mut state.clients[place];
                client.beats[slot] = Beat::default();
                if client.phase == Phase::Holding {
                    client.deadline = client.deadline.max(beat.sent);
                    return None;
                }
                accept(setup, state, place, beat.grant, beat.sent)
            });
        }
    }

    fn end(&mut self, place: usize) {
        let setup = self.setup;
        let grant = self.state.clients[place].grant;
        let number = grant.number.into();
        self.then(Step::Client(place, Action::Releases, number), |state| {
            let client = &mut state.clients[place];
            (client.phase, client.end) = (Phase::Over, End::Release);
        });
        if setup.reserves {
            self.then(Step::Client(place, Action::Reserves, number), |state| {
                let client = &mut state.clients[place];
                (client.phase, client.end) = (Phase::Over, End::Reserve(grant));
            });
        }
        let adopter = (0..setup.clients).find(|other| setup.roles[*other].adopts == Some(place));
        if let Some(adopter) = adopter
            && self.state.clients[adopter].handed.number == 0
        {
            self.then(Step::Client(place, Action::HandsOver, number), |state| {
                state.clients[adopter].handed = grant;
                state.clients[place].phase = Phase::HandedOver;
            });
        }
    }
}

fn send_beat(setup: &Setup, state: &mut State, place: usize, grant: Grant) {
    let sent = next_send(setup, state, place);
    let client = &mut state.clients[place];
    client.beats[usize::from(client.beaten)] = Beat { phase: BeatPhase::Sent, sent, grant };
    client.beaten += 1;
}

fn next_send(setup: &Setup, state: &State, place: usize) -> u8 {
    match setup.clocks {
        Clocks::Wrong => 0,
        Clocks::Right => state.next_send(place),
    }
}

/// Returns the promise that the acceptance of the grant breaks, if any.
fn accept(
    setup: &Setup,
    state: &mut State,
    place: usize,
    grant: Grant,
    deadline: u8,
) -> Option<Violation> {
    let is_other_holder =
        |(other, client): &(usize, &Client)| *other != place && client.phase == Phase::Holding;
    let holder = state.clients.iter().enumerate().find(is_other_holder);
    let violation = match holder {
        Some((_, holder)) if holder.grant.token == grant.token => Some(Violation::OneTokenTwice),
        Some(_) if setup.clocks == Clocks::Right && !setup.loses_data() => {
            Some(Violation::HeldByTwo)
        }
        _ => None,
    };
    state.accepted = grant.token.max(state.accepted);
    let client = &mut state.clients[place];
    (client.phase, client.grant, client.deadline) = (Phase::Holding, grant, deadline);
    violation
}
