//! The parameters of a search.

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) processes: usize,
    pub(crate) requests: u8,
    /// Heartbeats, adoptions and evictions rewrite the value.
    pub(crate) rewrites: u8,
    pub(crate) cuts: u8,
    /// The server loses data by a flush or a promotion.
    pub(crate) losses: u8,
    pub(crate) without: Option<Rule>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// One script obtains the key or marks its value.
    MarkInOneScript,
    /// A waiter sends another request after its subscription is confirmed.
    ConfirmedBeforeMark,
    /// A waiter sends another request after its subscription is renewed.
    LookAfterRenewal,
    /// A message that arrives while a request is under way causes another request.
    MessageDuringLook,
    /// A waiter sleeps no longer than the remaining ttl in its last answer.
    TimeLeft,
    BeatKeepsMark,
    AdoptionKeepsMark,
    EvictionKeepsMark,
    /// A release with a reservation also publishes a message.
    ReservationPublishes,
}

impl Setup {
    pub(crate) fn of(processes: usize) -> Self {
        Self { processes, requests: 3, rewrites: 1, cuts: 0, losses: 0, without: None }
    }

    pub(crate) fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }
}
