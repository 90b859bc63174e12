//! The parameters of a search.

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) workers: usize,
    /// The maximum of each fault.
    pub(crate) crashes: u8,
    pub(crate) restarts: u8,
    pub(crate) lost_sessions: u8,
    pub(crate) removed_rows: u8,
    pub(crate) unclear_claims: u8,
    pub(crate) hand_overs: u8,
    pub(crate) unanswered_counts: u8,
    /// Workers of the earlier mode obtain the shard under a lease with a ttl.
    pub(crate) claims_of_earlier_mode: u8,
    /// Whether a lease with a ttl holds the shard at first.
    pub(crate) first_lease: FirstLease,
    pub(crate) without: Option<Rule>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstLease {
    None,
    OfEarlierMode,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// The name of a counter contains the token of the session.
    CounterNamesSession,
    /// A worker writes its notices before it counts.
    WriteBeforeCount,
    /// A worker whose counter is missing counts again.
    LostCounterReturns,
    /// A counter that was removed continues above its former value.
    ReturnedCounterExceeds,
    /// A request that is not answered may have counted.
    UnansweredCountIsCounted,
    /// A reader that misses notices lists all rows.
    GapLists,
    /// A session without a counter stays in the ring until its end was seen.
    UncountedStaysInRing,
    /// All workers that know a session without a counter watch it.
    UncountedIsWatched,
    /// A session whose row is absent is ended.
    AbsentRowIsEnded,
    /// A worker whose claim was refused reads the row.
    RefusedIsRead,
    /// A worker reports a shard again when an unanswered claim or release is settled.
    SettledIsReported,
    /// A worker reads a row at each tick while a lease with a ttl holds it.
    ExpiringIsRead,
}

impl Setup {
    pub(crate) fn of(workers: usize) -> Self {
        Self {
            workers,
            crashes: 0,
            restarts: 0,
            lost_sessions: 0,
            removed_rows: 0,
            unclear_claims: 0,
            hand_overs: 0,
            unanswered_counts: 0,
            claims_of_earlier_mode: 0,
            first_lease: FirstLease::None,
            without: None,
        }
    }

    pub(crate) fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }
}
