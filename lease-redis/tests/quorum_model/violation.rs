//! What must never happen.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    OneTokenTwice,
    /// A token is no larger than one that was granted before its claim began.
    TokensOutOfOrder,
    /// With right clocks: a grant while another's holder still believes in its own.
    HeldByTwo,
    /// A majority extends a lease by a heartbeat that was sent after a larger token was granted.
    ExtendedAfterASuccessor,
    /// A node that remembers a release gives the key to that grant again.
    TakenAfterItsRelease,
}

impl Violation {
    pub(crate) const ALL: [Self; 5] = [
        Self::OneTokenTwice,
        Self::TokensOutOfOrder,
        Self::HeldByTwo,
        Self::ExtendedAfterASuccessor,
        Self::TakenAfterItsRelease,
    ];
}
