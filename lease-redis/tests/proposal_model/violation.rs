//! The violations of promises.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    OneTokenTwice,
    /// A token is not larger than a token that was granted before its claim.
    TokensOutOfOrder,
    /// Only right clocks exclude this violation.
    HeldByTwo,
    /// A majority extends a lease by a heartbeat that was sent after a larger token was granted.
    ExtendedAfterASuccessor,
    /// A node that has the counter of a release lets the released grant occupy the key again.
    TakenAfterItsRelease,
    /// A released grant occupies the key on a node to which no release was sent.
    TakenBesideItsRelease,
    /// A late release reserves the key on a majority after a larger token was granted.
    ReservedAfterASuccessor,
}

impl Violation {
    pub(crate) const ALL: [Self; 7] = [
        Self::OneTokenTwice,
        Self::TokensOutOfOrder,
        Self::HeldByTwo,
        Self::ExtendedAfterASuccessor,
        Self::TakenAfterItsRelease,
        Self::TakenBesideItsRelease,
        Self::ReservedAfterASuccessor,
    ];
}
