//! The violations of promises.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// Only right clocks without loss of data exclude this violation.
    HeldByTwo,
    /// A token is not larger than a token that was accepted before the request was sent.
    TokensOutOfOrder,
    OneTokenTwice,
    /// The server extends a lease that its client relies on, after it granted a larger token to another
    /// claim. In a pipeline, the larger token must be accepted.
    ExtendedAfterASuccessor,
    /// A heartbeat prolongs another tenure of its nonce, which may have no holder.
    ProlongedForNobody,
    /// A heartbeat prolongs its own tenure after its claim has ended. No rule prevents this violation.
    ProlongedAfterItsEnd,
    /// A handed-over grant is adopted after another claim was granted the key.
    AdoptedAfterAnother,
    /// A late release reserves the key in another tenure of its nonce.
    ReservedForNobody,
}

impl Violation {
    pub(crate) const ALL: [Self; 7] = [
        Self::HeldByTwo,
        Self::TokensOutOfOrder,
        Self::OneTokenTwice,
        Self::ExtendedAfterASuccessor,
        Self::ProlongedForNobody,
        Self::AdoptedAfterAnother,
        Self::ReservedForNobody,
    ];
}
