//! The parameters of a search.

use crate::state::MOST_CLIENTS;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Each client has one nonce. A new nonce of a process counts as another client.
    pub(crate) roles: [Role; MOST_CLIENTS],
    pub(crate) clients: usize,
    pub(crate) clocks: Clocks,
    /// Whether a place in the queue may time out before its last request is older than one ttl.
    pub(crate) impatient: bool,
    pub(crate) flushes: u8,
    /// A replica without the last writes becomes the server.
    pub(crate) promotions: u8,
    pub(crate) evictions: u8,
    pub(crate) kills: u8,
    pub(crate) cuts: u8,
    pub(crate) reserves: bool,
    pub(crate) skip: Skip,
    pub(crate) counts: Counts,
    /// Without exact tokens, the search does not check promises about earlier tokens.
    pub(crate) exact_tokens: bool,
    pub(crate) without: Option<Rule>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Role {
    pub(crate) requests: u8,
    /// The first requests that are a plain `SET NX`.
    pub(crate) plain: u8,
    pub(crate) beats: u8,
    pub(crate) leaves: bool,
    /// The requests of this client adopt the grant of that client.
    pub(crate) adopts: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clocks {
    /// A lease may expire at any instant. So promises that are kept depend on no clock.
    Wrong,
    /// A lease expires at the earliest one ttl after the send of its request or renewal.
    Right,
}

/// The server's reaction if the message to a waiter had no receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Skip {
    Never,
    /// The waiter loses its place.
    Removes,
    /// The waiter keeps its place.
    Passes,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counts {
    /// The ttl counts from the send of the request that the grant names.
    NamedSend,
    /// From the send of the answered request. A message counts from the last send.
    AnsweredSend,
    LastSend,
    Receipt,
}

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
    EndSettles,
    /// A release and a leave compare the nonce before they delete the lock.
    EndCompares,
    ReleaseLeavesQueue,
    LeaveLeavesQueue,
    GrantLeavesQueue,
    DeadAreSkipped,
    /// A place that timed out does not block the places behind it.
    DeadBlockNobody,
    RenewalKeepsPlace,
    RenewalRestartsAge,
    /// A nonce is not used again after its release or leave was sent.
    NewNonceAfterEnd,
    /// The answer contains the grant, so the caller of a script needs no message.
    CallerIsHeard,
    /// The server publishes a grant only if it has a subscriber. Without the rule, a waiter whose subscription is on a
    /// replica receives the message of a grant that the script takes back.
    CountBeforePublish,
    /// The server takes a grant back only in the script that made it.
    SkipInOneScript,
    /// After a loss of data, tokens continue from the server's time.
    TimeAfterLoss,
}

impl Setup {
    /// Two requests per client, and a heartbeat of the first client.
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

    /// Clients with the same role are interchangeable.
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
