//! The state of the model: the rows of the store, the processes, and the messages that were sent.

use std::fmt;

pub(crate) const WORKERS: usize = 3;
pub(crate) const SHARDS: usize = 2;
/// The maximum number of claims of one worker.
pub(crate) const CLAIMS: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct State {
    pub(crate) workers: [Worker; WORKERS],
    pub(crate) shards: [Shard; SHARDS],
}

/// A worker's row, its process, and its claims.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Worker {
    pub(crate) row: Row,
    /// Whether the process relies on its session. The row has this session's token.
    pub(crate) is_live: bool,
    /// The number of the last heartbeat that was sent under the session.
    pub(crate) sent_beat: u8,
    /// The number of the last heartbeat whose answer arrived in time.
    pub(crate) acked_beat: u8,
    pub(crate) claims: [Claim; CLAIMS],
}

/// The row of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Row {
    /// The token of the last session. Zero means that the row is absent.
    pub(crate) token: u8,
    /// Whether the row has a lessee. It has none after a release, or after the end was written.
    pub(crate) has_lessee: bool,
    /// The number of the last heartbeat that was applied.
    pub(crate) beat: u8,
    /// The number of expiry times that have passed. The grant and each heartbeat set one expiry time.
    pub(crate) passed: u8,
}

/// The row of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Shard {
    pub(crate) token: u8,
    pub(crate) holder: Option<ClaimId>,
}

/// Identifies a claim by its worker and its number, as a nonce does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ClaimId {
    pub(crate) worker: u8,
    pub(crate) number: u8,
}

/// Identifies a session by its worker and its token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Session {
    pub(crate) worker: u8,
    pub(crate) token: u8,
}

/// A claim: its message, its outcome, and the messages under its grant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Claim {
    pub(crate) phase: Phase,
    pub(crate) shard: u8,
    /// The token of the session under which the claim was made.
    pub(crate) session: u8,
    /// The token that the worker read in the shard's row before the claim.
    pub(crate) seen: u8,
    /// The session that held the shard before. The claim contains the proof that it has ended.
    pub(crate) former: Option<Session>,
    /// The token of the claim's grant; zero if the claim was not granted.
    pub(crate) granted: u8,
    /// Whether the store has refused the claim. The answer may then arrive at any time.
    pub(crate) is_refused: bool,
    pub(crate) release: Message,
    pub(crate) checkpoint: Message,
}

/// The state of a claim, as far as its worker knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Phase {
    #[default]
    Unused,
    /// The worker has sent the claim, and repeats it until it gets an answer.
    Pending,
    Holding,
    /// The worker has sent the release, and repeats it until it gets an answer.
    Releasing,
    /// The worker has no grant from this claim, as far as it knows.
    Over,
}

/// A message under a grant. Once sent, it may arrive at any time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Message {
    #[default]
    Unsent,
    Sent,
    /// The store has applied the message. The answer may arrive at any time.
    Answered,
}

/// A broken promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// Two workers rely on grants of one shard at the same time.
    HeldByTwo,
    /// A shard is held under a session on which its worker still relies, but the worker does not know of the
    /// grant. So nothing frees the shard.
    Orphaned,
    /// The token of a grant is not larger than the token of the previous grant.
    TokenNotLarger,
    /// The store applies a checkpoint of a grant after a later grant.
    CheckpointNotFenced,
}

impl Violation {
    /// All promises.
    pub(crate) const ALL: [Self; 4] =
        [Self::HeldByTwo, Self::Orphaned, Self::TokenNotLarger, Self::CheckpointNotFenced];
}

impl Row {
    /// Whether the store counts the session as expired.
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

    /// The session under which a shard is held by `id`.
    pub(crate) fn parent(&self, id: ClaimId) -> Session {
        Session { worker: id.worker, token: self.claim(id).session }
    }

    /// Whether the session's row proves that `session` has ended: it has a larger token, or no lessee.
    pub(crate) fn has_ended(&self, session: Session) -> bool {
        let row = &self.workers[usize::from(session.worker)].row;
        row.token > session.token || row.token == session.token && !row.has_lessee
    }
}

/// Writes the rows of sessions and shards, with the claims that hold the shards.
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
