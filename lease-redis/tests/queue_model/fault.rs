//! Expiry, places that time out, and faults.

use crate::model::Steps;
use crate::setup::Skip;
use crate::state::{Data, End, Kind, Lock, Phase};
use crate::step::{Action, Step};

impl Steps<'_> {
    pub(crate) fn expire(&mut self) {
        let lock = self.state.data.lock;
        // No client relies on a reservation.
        let may_expire = match lock.kind {
            Kind::Absent => false,
            Kind::Held | Kind::Evicted => !self.has_right_clocks() || lock.expiry == 0,
            Kind::Reserved => true,
        };
        if !may_expire {
            return;
        }
        let right = self.has_right_clocks() && lock.kind != Kind::Reserved;
        self.then(Step::Expires, |state| {
            state.data.lock = Lock::default();
            // The replica's lock was set earlier, with the same ttl. So it has also expired.
            if let Some(lagging) = &mut state.lagging
                && right
                && lagging.lock.kind != Kind::Reserved
            {
                lagging.lock = Lock::default();
            }
        });
    }

    pub(crate) fn time_out(&mut self, place: usize) {
        let queue = self.state.data.queue;
        let Some(index) = queue.find(place) else { return };
        let entry = queue.places()[index];
        let sent = self.state.clients[place].sent[usize::from(entry.number) - 1];
        let late = sent == 0 || !self.has_right_clocks() || self.setup.impatient;
        if late && !entry.silent {
            self.then(Step::TimesOut(place), |state| {
                let entry = &mut state.data.queue.places_mut()[index];
                (entry.silent, entry.dead) = (true, true);
            });
        }
    }

    pub(crate) fn lose_data(&mut self) {
        if self.state.flushes > 0 {
            self.then(Step::Flush, |state| {
                state.flushes -= 1;
                state.data = Data::default();
            });
        }
        if self.state.promotions > 0 && self.state.lagging.is_none() {
            self.then(Step::ReplicaLags, |state| state.lagging = Some(state.data));
        }
        if let Some(lagging) = self.state.lagging {
            self.then(Step::Promotion, |state| {
                state.promotions -= 1;
                (state.data, state.lagging) = (lagging, None);
            });
        }
    }

    /// The requests of the client may still arrive.
    pub(crate) fn kill(&mut self, place: usize) {
        let client = self.state.clients[place];
        if self.state.kills == 0 || !matches!(client.phase, Phase::Waiting | Phase::Holding) {
            return;
        }
        self.then(Step::Client(place, Action::IsKilled, client.asked.into()), |state| {
            state.kills -= 1;
            let client = &mut state.clients[place];
            (client.phase, client.end, client.deaf) = (Phase::Over, End::Nothing, true);
        });
    }

    pub(crate) fn cut(&mut self, place: usize) {
        let client = self.state.clients[place];
        if self.setup.skip == Skip::Never {
            return;
        }
        let asked = client.asked.into();
        if self.state.cuts > 0 && !client.deaf && client.phase == Phase::Waiting {
            self.then(Step::Client(place, Action::IsCut, asked), |state| {
                state.cuts -= 1;
                state.clients[place].deaf = true;
            });
        }
        if client.deaf && client.phase == Phase::Waiting {
            self.then(Step::Client(place, Action::Subscribes, asked), |state| {
                state.clients[place].deaf = false;
            });
        }
    }
}
