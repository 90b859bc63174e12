//! One state: the rows of the store, the processes, and the messages that were sent.

use std::fmt;

pub(crate) const WORKERS: usize = 3;
pub(crate) const SHARDS: usize = 2;
pub(crate) const CLAIMS: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct State {
    pub(crate) workers: [Worker; WORKERS],
    pub(crate) shards: [Shard; SHARDS],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Worker {
    pub(crate) row: Row,
    /// Whether the process relies on the session whose token the row has.
    pub(crate) is_live: bool,
    pub(crate) sent_beat: u8,
    /// The last heartbeat whose answer arrived in time.
    pub(crate) acked_beat: u8,
    pub(crate) claims: [Claim; CLAIMS],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Row {
    /// The token of the last session; zero if the row is absent.
    pub(crate) token: u8,
    /// False after a release, or after the end was written.
    pub(crate) has_lessee: bool,
    pub(crate) beat: u8,
    /// The number of expiry times that have passed. The grant and each heartbeat set one expiry
    /// time.
    pub(crate) passed: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Shard {
    pub(crate) token: u8,
    pub(crate) holder: Option<ClaimId>,
}

/// Worker and number identify a claim, as a nonce does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ClaimId {
    pub(crate) worker: u8,
    pub(crate) number: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Session {
    pub(crate) worker: u8,
    pub(crate) token: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Claim {
    pub(crate) phase: Phase,
    pub(crate) shard: u8,
    pub(crate) session: u8,
    /// The token that the worker read in the shard's row before the claim.
    pub(crate) seen: u8,
    /// The claim contains the proof that this former session of the shard has ended.
    pub(crate) former: Option<Session>,
    /// The token of the claim's grant, or zero if the claim was not granted.
    pub(crate) granted: u8,
    /// The answer of the refusal may arrive at any time.
    pub(crate) is_refused: bool,
    pub(crate) release: Message,
    pub(crate) checkpoint: Message,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Phase {
    #[default]
    Unused,
    /// The worker repeats the claim until it gets an answer.
    Pending,
    Holding,
    /// The worker repeats the release until it gets an answer.
    Releasing,
    /// The worker knows of no grant from this claim.
    Over,
}

/// A sent message may arrive at any time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Message {
    #[default]
    Unsent,
    Sent,
    /// The answer may arrive at any time.
    Answered,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    HeldByTwo,
    /// No process frees the shard: the worker still relies on the session, but does not know of the grant.
    Orphaned,
    TokenNotLarger,
    /// The store applies a checkpoint of a grant after a later grant.
    CheckpointNotFenced,
}

impl Violation {
    pub(crate) const ALL: [Self; 4] =
        [Self::HeldByTwo, Self::Orphaned, Self::TokenNotLarger, Self::CheckpointNotFenced];
}

impl Row {
    pub(crate) fn is_expired(self) -> bool {
        self.beat < self.passed
    }
}

impl State {
    pub(crate) fn claim(&self, id: ClaimId) -> &Claim {
        &self.workers[usize::from(id.worker)].claims[usize::from(id.number)]
    }

    pub(crate) fn claim_mut(&mut self, id: ClaimId) -> &mut Claim {
        &mut self.workers[usize::from(id.worker)].claims[usize::from(id.number)]
    }

    pub(crate) fn parent(&self, id: ClaimId) -> Session {
        Session { worker: id.worker, token: self.claim(id).session }
    }

    /// Whether the session's row proves that `session` has ended.
    pub(crate) fn has_ended(&self, session: Session) -> bool {
        let row = &self.workers[usize::from(session.worker)].row;
        row.token > session.token || row.token == session.token && !row.has_lessee
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (worker, name) in self.workers.iter().zip('A'..) {
            if worker.row.token == 0 {
                continue;
            }
            let live = if worker.is_live { "live" } else { "over" };
            let row = if worker.row.has_lessee { "held" } else { "ended" };
            write!(f, " {name}{}:{row}/{live}", worker.row.token)?;
        }
        for shard in &self.shards {
            match shard.holder {
                Some(id) => write!(f, "  S{} of {id}", shard.token)?,
                None => write!(f, "  S{} free", shard.token)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'s claim {}", name(self.worker), self.number)
    }
}

pub(crate) fn name(worker: u8) -> char {
    char::from(b'A' + worker)
}
