//! One state: the value of the key, and the processes that want the key.

use std::fmt;

pub(crate) const MOST_PROCESSES: usize = 3;
pub(crate) const MOST_REQUESTS: usize = 4;
/// A mark has created the value without a grant.
pub(crate) const NOBODY: u8 = 9;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct State {
    pub(crate) value: Value,
    pub(crate) processes: [Process; MOST_PROCESSES],
    pub(crate) rewrites: u8,
    pub(crate) cuts: u8,
    pub(crate) losses: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Value {
    pub(crate) kind: Kind,
    pub(crate) holder: u8,
    pub(crate) mark: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Kind {
    #[default]
    Absent,
    Held,
    Evicted,
    Reserved,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent")]
pub(crate) struct Process {
    pub(crate) phase: Phase,
    pub(crate) subscription: Subscription,
    pub(crate) message: bool,
    /// The process sends another request as soon as no request is under way.
    pub(crate) must_look: bool,
    /// The remaining ttl in the last answer ends the sleep.
    pub(crate) timed: bool,
    /// The key was freed or reserved since its last request arrived.
    pub(crate) unseen: bool,
    pub(crate) asked: u8,
    /// Zero means no request.
    pub(crate) current: u8,
    pub(crate) requests: [Request; MOST_REQUESTS],
    pub(crate) release: Release,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// The first request was sent, and not refused yet.
    Asking,
    Waiting,
    Holding,
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Subscription {
    #[default]
    Nothing,
    Sent,
    /// The server publishes to the process. The confirmation may arrive.
    Active,
    Confirmed,
    /// The connection broke. The process can notice the break at any time.
    Broken,
    /// SUBSCRIBE may arrive on the next connection.
    SentAgain,
    ActiveAgain,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Request {
    #[default]
    Nothing,
    Obtain,
    ObtainOrMark,
    Mark,
    Granted,
    Held,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Release {
    #[default]
    Nothing,
    Sent,
    Reserving,
}

impl Process {
    pub(crate) fn sleeps(&self) -> bool {
        self.phase == Phase::Waiting
            && self.subscription == Subscription::Confirmed
            && self.current == 0
            && !self.must_look
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        matches!(
            self.subscription,
            Subscription::Active | Subscription::ActiveAgain | Subscription::Confirmed
        )
    }

    /// Keeps requests and the release.
    pub(crate) fn leave(&mut self, phase: Phase) {
        let (requests, release) = (self.requests, self.release);
        *self = Self { phase, requests, release, asked: self.asked, ..Self::default() };
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holder = if self.value.holder == NOBODY { '?' } else { name(self.value.holder.into()) };
        let mark = if self.value.mark { 'w' } else { ' ' };
        match self.value.kind {
            Kind::Absent => f.write_str(" -  "),
            Kind::Held => write!(f, " {holder}{mark} "),
            Kind::Evicted => write!(f, " {holder}{mark}e"),
            Kind::Reserved => write!(f, " {holder}{mark}r"),
        }?;
        for (place, process) in self.processes.iter().enumerate() {
            if process.sleeps() {
                write!(f, " {} sleeps", name(place))?;
            }
        }
        Ok(())
    }
}

pub(crate) fn name(place: usize) -> char {
    ['A', 'B', 'C'][place]
}
