//! The parameters of a search: the clients, the faults, and the rules that are left out.

use crate::state::MOST_CLIENTS;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// The clients. Each client has one nonce. A new nonce of a process counts as another client.
    pub(crate) roles: [Role; MOST_CLIENTS],
    pub(crate) clients: usize,
    pub(crate) clocks: Clocks,
    /// Whether a place in the queue may time out before its last request is older than one ttl.
    pub(crate) impatient: bool,
    /// The number of times that the server may lose all data.
    pub(crate) flushes: u8,
    /// The number of times that a replica without the last writes may become the server.
    pub(crate) promotions: u8,
    pub(crate) evictions: u8,
    /// The number of clients that may be killed.
    pub(crate) kills: u8,
    /// The number of times that the subscription of a client may break.
    pub(crate) cuts: u8,
    /// Whether a holder may release its key with a reservation.
    pub(crate) reserves: bool,
    pub(crate) skip: Skip,
    pub(crate) counts: Counts,
    /// Whether tokens keep their numbers. Otherwise, states keep only the tokens' order, and have no more
    /// tokens than they can use. But then promises about earlier tokens are not checked.
    pub(crate) exact_tokens: bool,
    pub(crate) without: Option<Rule>,
}

/// The actions that one client may take.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Role {
    /// The number of requests that the client sends with its nonce: one enqueue, and renewals.
    pub(crate) requests: u8,
    /// The number of these requests, from the first, that are a plain `SET NX`.
    pub(crate) plain: u8,
    pub(crate) beats: u8,
    /// Whether the client may leave the queue before it has the key.
    pub(crate) leaves: bool,
    /// The client whose grant is handed over to this client. The requests of this client adopt that grant.
    pub(crate) adopts: Option<usize>,
}

/// The times at which a lease may expire, and a place in the queue may time out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clocks {
    /// At any instant. So promises that are found kept depend on no clock.
    Wrong,
    /// At the earliest one ttl after the send of the request that set the lease or renewed the place.
    Right,
}

/// The server's reaction if the message to a waiter had no receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Skip {
    /// The server keeps the grant.
    Never,
    /// The script takes the grant back, and the waiter loses its place.
    Removes,
    /// The script takes the grant back, and the waiter keeps its place.
    Passes,
}

/// The time from which a client counts the ttl of a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counts {
    /// From the send of the request that the grant names.
    NamedSend,
    /// From the send of the request that was answered. A message counts from the last send.
    AnsweredSend,
    /// From the last send.
    LastSend,
    /// From the receipt of the message or of the answer.
    Receipt,
}

/// A rule of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// A grant that the client learns of after its deadline does not count.
    DeadlineCheck,
    /// A heartbeat, a reservation and an adoption name the tenure, not the nonce alone.
    Tenure,
    /// The request and the token name a tenure. The server refuses a smaller token than the lock's token.
    TokenNamesTenure,
    /// A renewal that finds the lock expired grants the key to the next waiter.
    RenewalSettles,
    /// A request that enters the queue while the lock has expired grants the key to the next waiter.
    EnqueueSettles,
    /// A release and a leave grant the key to the next waiter.
    EndSettles,
    /// A release and a leave compare the nonce before they delete the lock.
    EndCompares,
    /// A release removes its nonce from the queue.
    ReleaseLeavesQueue,
    /// A leave removes its nonce from the queue.
    LeaveLeavesQueue,
    /// A waiter that is granted the key leaves the queue.
    GrantLeavesQueue,
    /// A place that timed out is not granted the key.
    DeadAreSkipped,
    /// A place that timed out does not block the places behind it.
    DeadBlockNobody,
    /// A renewal keeps the place.
    RenewalKeepsPlace,
    /// A renewal restarts the age of the place.
    RenewalRestartsAge,
    /// A nonce is not used again after its release or leave was sent.
    NewNonceAfterEnd,
    /// The caller of a script needs no message: the answer contains the grant.
    CallerIsHeard,
    /// The server takes a grant back only in the script that made it.
    SkipInOneScript,
    /// After a loss of data, tokens continue from the server's time.
    TimeAfterLoss,
}

impl Setup {
    /// Makes a setup with two requests per client, and a heartbeat of the first client.
    pub(crate) fn of(clients: usize, clocks: Clocks) -> Self {
        let role = Role { requests: 2, leaves: true, ..Role::default() };
        Self {
            roles: [Role { beats: 1, ..role }, role, role],
            clients,
            clocks,
            impatient: false,
            flushes: 0,
            promotions: 0,
            evictions: 0,
            kills: 0,
            cuts: 0,
            reserves: false,
            skip: Skip::Never,
            counts: Counts::NamedSend,
            exact_tokens: false,
            without: None,
        }
    }

    /// The second client adopts the grant of the first client. The third client waits in the queue.
    pub(crate) fn handed_over(clocks: Clocks) -> Self {
        let mut setup = Self::of(3, clocks).with_requests([1, 1, 1]).with_beats([1, 1, 0]);
        setup.roles[1].adopts = Some(0);
        setup
    }

    pub(crate) fn with_requests(mut self, requests: [u8; MOST_CLIENTS]) -> Self {
        for (role, requests) in self.roles.iter_mut().zip(requests) {
            role.requests = requests;
        }
        self
    }

    pub(crate) fn with_plain(mut self, plain: [u8; MOST_CLIENTS]) -> Self {
        for (role, plain) in self.roles.iter_mut().zip(plain) {
            role.plain = plain;
        }
        self
    }

    pub(crate) fn with_beats(mut self, beats: [u8; MOST_CLIENTS]) -> Self {
        for (role, beats) in self.roles.iter_mut().zip(beats) {
            role.beats = beats;
        }
        self
    }

    pub(crate) fn with_leaves(mut self, leaves: [bool; MOST_CLIENTS]) -> Self {
        for (role, leaves) in self.roles.iter_mut().zip(leaves) {
            role.leaves = leaves;
        }
        self
    }

    pub(crate) fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    pub(crate) fn loses_data(&self) -> bool {
        self.flushes > 0 || self.promotions > 0
    }

    /// Returns the possible orders of the clients' names: clients with the same role are interchangeable.
    pub(crate) fn orders(&self) -> Vec<[u8; MOST_CLIENTS]> {
        let same = |(new, old): (usize, &u8)| self.is_same_role(new, usize::from(*old));
        let orders = ORDERS.into_iter();
        orders.filter(|order| order.iter().enumerate().all(same)).collect()
    }

    fn is_same_role(&self, one: usize, other: usize) -> bool {
        let related = |client: usize| {
            let adopted = self.roles.iter().any(|role| role.adopts == Some(client));
            adopted || self.roles[client].adopts.is_some()
        };
        let both_used = one.max(other) < self.clients;
        let alike = self.roles[one] == self.roles[other] && !related(one) && !related(other);
        one == other || both_used && alike
    }
}

const ORDERS: [[u8; MOST_CLIENTS]; 6] =
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
