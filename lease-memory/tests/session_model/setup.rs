//! The parameters of a search.

use super::state::{CLAIMS, SHARDS, WORKERS};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) workers: usize,
    pub(crate) shards: usize,
    pub(crate) sessions: [u8; WORKERS],
    /// The maximum per worker, over all sessions and shards.
    pub(crate) claims: [usize; WORKERS],
    pub(crate) beats: u8,
    pub(crate) checkpoints: bool,
    pub(crate) clocks: Clocks,
    pub(crate) without: Option<Rule>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clocks {
    /// A session expires only after its worker has stopped relying on the session.
    Right,
    Wrong,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// A session ends only by a write to its own row, which applies only to an expired session. Without
    /// this rule, a stale read of a passed expiry counts as the end.
    EndIsWritten,
    /// The row of a shard names its session's token. Without this rule, the end of any session of the same
    /// worker counts.
    ParentToken,
    /// A claim contains a proof: the written end of the former session. Without this rule, the store checks
    /// the session's row in the transaction of the claim.
    ProofBeforeClaim,
    /// An absent row proves nothing. Without this rule, a read before the first grant of the session counts
    /// as a proof.
    AbsenceProvesNothing,
    /// A worker that starts a new session has lost the shards of its former session.
    NewSessionLosesShards,
    TokenGrows,
    /// A release names the grant. Without this rule, a release names only the session.
    ReleaseNamesGrant,
    /// A checkpoint names the grant. Without this rule, a checkpoint names only the worker.
    CheckpointNamesGrant,
    /// A claim names the shard's token that its worker has read.
    ClaimNamesToken,
    /// A worker repeats an unanswered claim or release until an answer arrives, or its session
    /// ends.
    Settle,
}

impl Setup {
    /// Two workers contend for one shard. Each worker has two sessions.
    pub(crate) fn contended() -> Self {
        Self {
            workers: 2,
            shards: 1,
            sessions: [2, 2, 0],
            claims: [2, 2, 0],
            beats: 0,
            checkpoints: true,
            clocks: Clocks::Right,
            without: None,
        }
    }

    pub(crate) fn leaves_out(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    pub(crate) fn worker_orders(&self) -> Vec<[usize; WORKERS]> {
        let is_same = |one: usize, other: usize| {
            one == other
                || one < self.workers
                    && other < self.workers
                    && self.sessions[one] == self.sessions[other]
                    && self.claims[one] == self.claims[other]
        };
        let mut orders = Vec::new();
        for number in 0..WORKERS.pow(3) {
            let order = [number % WORKERS, number / WORKERS % WORKERS, number / WORKERS / WORKERS];
            let is_order = (0..WORKERS).all(|worker| order.contains(&worker));
            if is_order && (0..WORKERS).all(|worker| is_same(worker, order[worker])) {
                orders.push(order);
            }
        }
        orders
    }

    pub(crate) fn shard_orders(&self) -> Vec<[usize; SHARDS]> {
        if self.shards == 2 { vec![[0, 1], [1, 0]] } else { vec![[0, 1]] }
    }

    pub(crate) fn check(&self) {
        assert!(self.workers <= WORKERS && self.shards <= SHARDS && self.beats <= 1);
        assert!(self.claims.iter().all(|claims| *claims <= CLAIMS));
    }
}
