//! The parameters of a search: the claims, their possible actions, and the rules that are left out.

use super::state::MOST_CLAIMS;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// The claims. Each claim has its own nonce. A second nonce of a client counts as another claim.
    pub(crate) roles: [Role; MOST_CLAIMS],
    pub(crate) claims: usize,
    pub(crate) clocks: Clocks,
    /// The number of times that the server may lose all data but keep its connections.
    pub(crate) flushes: u8,
    /// The number of times that the server may restart without its data.
    pub(crate) restarts: u8,
    /// The number of times that a replica without the last writes may become the server.
    pub(crate) promotions: u8,
    /// The number of evictions that may arrive.
    pub(crate) evictions: u8,
    /// Whether a holder may release its key with a reservation.
    pub(crate) reserves: bool,
    pub(crate) again: Again,
    pub(crate) write: Write,
    /// Whether tokens keep their numbers. Otherwise, states keep only the tokens' order, and have no more
    /// tokens than they can use. But then promises about earlier tokens are not checked.
    pub(crate) exact_tokens: bool,
    pub(crate) without: Option<Rule>,
}

/// The actions that one claim may take.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Role {
    pub(crate) key: usize,
    /// The number of requests that the claim sends, all with its nonce.
    pub(crate) requests: u8,
    pub(crate) beats: u8,
    /// The number of the claim's batcher. Claims of the same batcher may share a request. Zero: no batcher.
    pub(crate) batcher: usize,
    /// The claim whose grant is handed over to this claim. The requests of this claim adopt that grant.
    pub(crate) adopts: Option<usize>,
}

/// The times at which a lease may expire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clocks {
    /// At any instant. So promises that are found kept depend on no clock.
    Wrong,
    /// At the earliest one ttl after the send of the request that set the expiry.
    Right,
}

/// The reaction of a claim to the answer that an earlier request of its nonce was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Again {
    /// The claim sends a heartbeat, and counts the ttl from the send of the heartbeat.
    Heartbeat,
    /// The claim counts the ttl from the send of the granted request, or sends a heartbeat.
    NamedSend,
    /// The claim counts the ttl from the send of the answered request.
    OwnSend,
}

/// The commands that write a request to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Write {
    /// SET and XADD in one transaction.
    Transaction,
    /// SET, then XADD. Other requests may arrive between them.
    Pipeline,
    /// SET, then XADD. The reply counts only if the same run of the server has answered both.
    PipelineOfOneRun,
}

/// A rule of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// A heartbeat and an adoption name the request that was granted.
    RequestNumber,
    /// A heartbeat is refused if a later heartbeat has arrived.
    BeatNumber,
    /// A grant whose answer arrives after its deadline does not count.
    DeadlineCheck,
    /// An extension whose answer arrives after its own deadline does not count.
    DeadlineOfExtension,
    /// A lease whose deadline has passed is not revived by a late answer to a heartbeat.
    DeadlineIsFinal,
    /// An eviction keeps the key occupied.
    EvictionKeepsKey,
    /// A release compares the nonce before it deletes the key.
    ReleaseCompares,
    /// A release with a reservation names the request that was granted.
    ReservationNamesRequest,
    /// A nonce is not claimed again after its release was sent.
    NewNonceAfterRelease,
    /// After a loss of data, tokens continue from the server's time.
    TimeAfterLoss,
    /// The client stops relying on its lease before it hands the grant over.
    HandOverEndsLease,
}

impl Setup {
    /// Two claims for one key, which send two requests each. The first claim also sends a heartbeat.
    pub(crate) fn contended(clocks: Clocks) -> Self {
        let role = Role { requests: 2, ..Role::default() };
        Self {
            roles: [Role { beats: 1, ..role }, role, role, role],
            claims: 2,
            clocks,
            flushes: 0,
            restarts: 0,
            promotions: 0,
            evictions: 0,
            reserves: false,
            again: Again::Heartbeat,
            write: Write::Transaction,
            exact_tokens: false,
            without: None,
        }
    }

    /// The second claim adopts the grant of the first claim, and the third claim competes.
    pub(crate) fn handed_over(clocks: Clocks) -> Self {
        let contended = Self::contended(clocks);
        let [first, other, ..] = contended.roles;
        let adopter = Role { adopts: Some(0), beats: 1, ..other };
        let competitor = Role { requests: 1, ..other };
        Self { roles: [first, adopter, competitor, other], claims: 3, ..contended }
    }

    /// The grant is handed over to the second claim, and then to the third. The fourth claim competes.
    pub(crate) fn handed_over_twice(clocks: Clocks) -> Self {
        let contended = Self::contended(clocks);
        let role = Role { requests: 1, ..Role::default() };
        let adopter = |from| Role { adopts: Some(from), beats: 1, ..role };
        let roles = [Role { requests: 2, beats: 1, ..role }, adopter(0), adopter(1), role];
        Self { roles, claims: 4, ..contended }
    }

    /// Two keys. Two batchers claim both keys.
    pub(crate) fn batched(clocks: Clocks) -> Self {
        let contended = Self::contended(clocks);
        let role =
            |key, batcher, beats| Role { key, batcher, requests: 1, beats, ..Role::default() };
        let roles = [role(0, 1, 1), role(1, 1, 1), role(0, 2, 0), role(1, 2, 0)];
        Self { roles, claims: 4, ..contended }
    }

    /// Sets the number of heartbeats of the first three claims.
    pub(crate) fn with_beats(mut self, beats: [u8; 3]) -> Self {
        for (role, beats) in self.roles.iter_mut().zip(beats) {
            role.beats = beats;
        }
        self
    }

    pub(crate) fn with_requests(mut self, requests: u8) -> Self {
        for role in &mut self.roles {
            role.requests = requests;
        }
        self
    }

    pub(crate) fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    pub(crate) fn loses_data(&self) -> bool {
        self.flushes > 0 || self.restarts > 0 || self.promotions > 0
    }

    /// Returns the possible orders of the claims' names: claims with the same role are interchangeable.
    pub(crate) fn orders(&self) -> Vec<[u8; MOST_CLAIMS]> {
        let mut orders = Vec::new();
        for number in 0..MOST_CLAIMS.pow(4) {
            let order: [usize; MOST_CLAIMS] =
                std::array::from_fn(|place| number / PLACES[place] % MOST_CLAIMS);
            let all = (0..MOST_CLAIMS).all(|claim| order.contains(&claim));
            if all && (0..MOST_CLAIMS).all(|claim| self.is_same_role(claim, order[claim])) {
                orders.push(order.map(|claim| u8::try_from(claim).unwrap()));
            }
        }
        orders
    }

    fn is_same_role(&self, one: usize, other: usize) -> bool {
        let related = |claim: usize| {
            let role = self.roles[claim];
            role.batcher != 0
                || role.adopts.is_some()
                || self.roles[..self.claims].iter().any(|role| role.adopts == Some(claim))
        };
        let used = |claim: usize| claim < self.claims;
        one == other
            || used(one)
                && used(other)
                && self.roles[one] == self.roles[other]
                && !related(one)
                && !related(other)
    }
}

/// The powers of the number of claims, from the zeroth.
const PLACES: [usize; MOST_CLAIMS] = [1, 4, 16, 64];
