//! Checks that each waiter is granted the key at some time, if no more faults happen.
//!
//! The check tries one continuation of many, in which all messages in flight are lost. The search also visits
//! the states after their arrival.

use crate::queue::end;
use crate::server::enqueue;
use crate::setup::{Clocks, Setup};
use crate::state::{Beat, End, FRESH, Lock, MOST_CLIENTS, News, Phase, State};

/// Waiters renew their places in ascending or descending order.
pub(crate) fn is_stuck(setup: &Setup, state: &State) -> bool {
    let waits = (0..setup.clients).any(|place| waits(setup, state, place));
    let ascending = [0, 1, 2];
    let descending = [2, 1, 0];
    waits && [ascending, descending].iter().any(|order| !Future::of(setup, state).serves(order))
}

/// A client that adopts a grant does not wait for the key.
fn waits(setup: &Setup, state: &State, place: usize) -> bool {
    state.clients[place].phase == Phase::Waiting && setup.roles[place].adopts.is_none()
}

struct Future<'a> {
    setup: &'a Setup,
    state: State,
}

impl<'a> Future<'a> {
    fn of(setup: &'a Setup, state: &State) -> Self {
        let mut state = *state;
        for client in &mut state.clients {
            client.flying = 0;
            client.news = Default::default();
            client.beats = [Beat::default(); 2];
            client.end = End::Nothing;
        }
        Self { setup, state }
    }

    fn serves(mut self, order: &[usize; MOST_CLIENTS]) -> bool {
        for place in 0..self.setup.clients {
            if self.state.clients[place].phase == Phase::Holding {
                self.release(place);
            }
        }
        for _ in 0..=self.setup.clients {
            for place in order.iter().copied().filter(|place| *place < self.setup.clients) {
                self.renew(place);
            }
            if !(0..self.setup.clients).any(|place| waits(self.setup, &self.state, place)) {
                return true;
            }
            self.pass_ttl();
        }
        false
    }

    fn renew(&mut self, place: usize) {
        if !waits(self.setup, &self.state, place) {
            return;
        }
        let client = &mut self.state.clients[place];
        client.deaf = false;
        client.sent[usize::from(FRESH) - 1] = 1;
        enqueue(self.setup, &mut self.state, place, FRESH);
        self.deliver_news();
    }

    fn deliver_news(&mut self) {
        for place in 0..self.setup.clients {
            let client = &mut self.state.clients[place];
            let right = self.setup.clocks == Clocks::Right;
            let counts = |news: &News| {
                let number = usize::from(news.grant.number);
                number > 0 && !(right && client.sent[number - 1] == 0)
            };
            let told = client.news.iter().any(counts);
            client.news = Default::default();
            if told && client.phase == Phase::Waiting {
                self.release(place);
            }
        }
    }

    fn release(&mut self, place: usize) {
        self.state.clients[place].phase = Phase::Over;
        end(self.setup, &mut self.state, place, End::Release);
        self.deliver_news();
    }

    fn pass_ttl(&mut self) {
        self.state.data.lock = Lock::default();
        for place in 0..self.setup.clients {
            self.state.change_sends(place, |sent| *sent = 0);
            let renews = waits(self.setup, &self.state, place);
            if let Some(index) = self.state.data.queue.find(place)
                && !renews
            {
                let place = &mut self.state.data.queue.places_mut()[index];
                (place.silent, place.dead) = (true, true);
            }
        }
    }
}
