//! The violations of promises.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// Only right clocks without loss of data exclude this violation.
    HeldByTwo,
    /// A token is not larger than a token that was accepted before the request was sent.
    TokensOutOfOrder,
    OneTokenTwice,
    /// The server extends a lease that its client relies on, after granting a larger token to
    /// another client.
    ExtendedAfterASuccessor,
    /// A heartbeat prolongs another tenure of its nonce, which may have no holder.
    ProlongedForNobody,
    /// A late release reserves the key in another tenure of its nonce.
    ReservedForNobody,
    /// A handed-over grant is adopted after another client was granted the key.
    AdoptedAfterAnother,
    /// A script grants the key while a living waiter has an earlier place.
    Overtaken,
    LosesItsPlace,
    GrantedToTheDead,
    /// A nonce keeps its place in the queue after its release or leave has arrived.
    QueuedAfterItsEnd,
    /// A nonce is granted the key again, although no request of it arrived since the last grant.
    GrantedTwice,
    /// A request leaves the key free beside a living waiter that could receive the message.
    FreeBesideAWaiter,
    /// A waiter is never granted the key, even if no more faults happen and all waiters renew their places.
    Stuck,
}

impl Violation {
    pub(crate) const ALL: [Self; 14] = [
        Self::HeldByTwo,
        Self::TokensOutOfOrder,
        Self::OneTokenTwice,
        Self::ExtendedAfterASuccessor,
        Self::ProlongedForNobody,
        Self::ReservedForNobody,
        Self::AdoptedAfterAnother,
        Self::Overtaken,
        Self::LosesItsPlace,
        Self::GrantedToTheDead,
        Self::QueuedAfterItsEnd,
        Self::GrantedTwice,
        Self::FreeBesideAWaiter,
        Self::Stuck,
    ];
}
