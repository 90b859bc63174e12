//! The parameters of a search.

use super::state::MOST_CLAIMS;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Each claim has its own nonce. A second nonce of a client counts as another claim.
    pub(crate) roles: [Role; MOST_CLAIMS],
    pub(crate) claims: usize,
    pub(crate) clocks: Clocks,
    /// The server loses all data but keeps its connections.
    pub(crate) flushes: u8,
    /// The server restarts without its data.
    pub(crate) restarts: u8,
    /// A replica without the last writes becomes the server.
    pub(crate) promotions: u8,
    pub(crate) evictions: u8,
    pub(crate) reserves: bool,
    pub(crate) again: Again,
    pub(crate) write: Write,
    /// Without exact tokens, the search does not check promises about earlier tokens.
    pub(crate) exact_tokens: bool,
    pub(crate) without: Option<Rule>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Role {
    pub(crate) key: usize,
    pub(crate) requests: u8,
    pub(crate) beats: u8,
    /// Claims of the same batcher may share a request. Zero means no batcher.
    pub(crate) batcher: usize,
    /// The requests of this claim adopt the grant of that claim.
    pub(crate) adopts: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clocks {
    /// At any instant, so a promise that the search finds kept depends on no clock.
    Wrong,
    /// A lease expires at the earliest one ttl after the send of the request that set the expiry.
    Right,
}

/// The reaction of a claim if an earlier request of its nonce was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Again {
    /// The claim counts the ttl from the send of a new heartbeat.
    Heartbeat,
    /// The ttl counts from the send of the granted request, or a heartbeat follows.
    NamedSend,
    /// The ttl counts from the send of the answered request.
    OwnSend,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Write {
    Transaction,
    /// Other requests may arrive between SET and XADD.
    Pipeline,
    /// The reply counts only if the same run of the server has answered SET and XADD.
    PipelineOfOneRun,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    RequestNumber,
    /// A heartbeat is refused if a later heartbeat has arrived.
    BeatNumber,
    /// A grant whose answer arrives after its deadline does not count.
    DeadlineCheck,
    /// An extension whose answer arrives after its own deadline does not count.
    DeadlineOfExtension,
    /// A late answer to a heartbeat does not revive a lease whose deadline has passed.
    DeadlineIsFinal,
    EvictionKeepsKey,
    /// A release compares the nonce before it deletes the key.
    ReleaseCompares,
    ReservationNamesRequest,
    /// A nonce is not claimed again after its release was sent.
    NewNonceAfterRelease,
    /// After a loss of data, tokens continue from the server's time.
    TimeAfterLoss,
    /// The client stops relying on its lease before it hands the grant over.
    HandOverEndsLease,
}

impl Setup {
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

    pub(crate) fn batched(clocks: Clocks) -> Self {
        let contended = Self::contended(clocks);
        let role =
            |key, batcher, beats| Role { key, batcher, requests: 1, beats, ..Role::default() };
        let roles = [role(0, 1, 1), role(1, 1, 1), role(0, 2, 0), role(1, 2, 0)];
        Self { roles, claims: 4, ..contended }
    }

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

    /// Claims with the same role are interchangeable.
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

const PLACES: [usize; MOST_CLAIMS] = [1, 4, 16, 64];
