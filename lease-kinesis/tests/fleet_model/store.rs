//! The requests of lease-core, each as one atomic step.

use super::setup::{Rule, Setup};
use super::state::{Holder, Notices, Row, Session, State};

impl State {
    /// Whether `session` has ended. Ends a session that has expired, and one whose row is absent.
    pub(crate) fn ends(&mut self, setup: &Setup, session: Session) -> bool {
        let row = &mut self.rows[session.worker];
        if row.token > session.token {
            return true;
        }
        if row.is_absent {
            return setup.has(Rule::AbsentRowIsEnded);
        }
        if row.has_expired {
            row.is_held = false;
        }
        !row.is_held
    }

    /// A claim reads the row of the shard, and proves the end of the session that holds it.
    pub(crate) fn is_granted(&mut self, claimant: Session) -> bool {
        let is_free = match self.shard {
            Holder::Free => true,
            Holder::Expiring => false,
            // A claim marks an absent row, whatever the worker's own rule is.
            Holder::Session(session) => {
                let row = self.rows[session.worker];
                let is_absent = row.is_absent && row.token == session.token;
                is_absent || row.token > session.token || !row.is_held || row.has_expired
            }
        };
        if is_free {
            self.shard = Holder::Session(claimant);
        }
        is_free
    }

    pub(crate) fn release(&mut self, session: Session) {
        if self.shard == Holder::Session(session) {
            self.shard = Holder::Free;
        }
    }

    /// Grants the next session of `worker`, if its row is free.
    pub(crate) fn obtain_session(&mut self, worker: usize) -> u8 {
        let row = &mut self.rows[worker];
        let token = row.token + 1;
        *row = Row { token, is_held: true, notices: Notices::default(), ..Row::default() };
        token
    }

    pub(crate) fn can_obtain_session(&self, worker: usize) -> bool {
        let row = self.rows[worker];
        row.is_absent || !row.is_held || row.has_expired
    }
}
