//! The state of the model: the rows of the store, the processes, and the messages that were sent.

use std::fmt;

pub(crate) const WORKERS: usize = 3;
pub(crate) const SHARDS: usize = 2;
/// The most claims of one worker.
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
    /// The process relies on the session whose token is that of the row.
    pub(crate) is_live: bool,
    /// The last heartbeat that was sent under the session.
    pub(crate) sent_beat: u8,
    /// The last heartbeat whose answer arrived in time.
    pub(crate) acked_beat: u8,
    pub(crate) claims: [Claim; CLAIMS],
}

/// The row of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Row {
    /// Zero: the row is absent.
    pub(crate) token: u8,
    /// False after a release, and after the end was written.
    pub(crate) has_lessee: bool,
    /// The last heartbeat that was applied.
    pub(crate) beat: u8,
    /// How many of the expiries have passed: one of the grant, and one of each heartbeat.
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
    /// The token of its session.
    pub(crate) session: u8,
    /// The token of the shard that its worker has read.
    pub(crate) seen: u8,
    /// The session that held the shard, and has ended.
    pub(crate) former: Option<Session>,
    /// The token of its grant; zero if it was not granted.
    pub(crate) granted: u8,
    /// An answer that refuses the claim may arrive.
    pub(crate) is_refused: bool,
    pub(crate) release: Message,
    pub(crate) checkpoint: Message,
}

/// The state of a claim at its worker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Phase {
    #[default]
    Unused,
    /// Sent, and repeated until it is answered.
    Pending,
    Holding,
    /// The release is sent, and repeated until it is answered.
    Releasing,
    /// The worker knows of no grant.
    Over,
}

/// A message under a grant. Once sent, it may arrive at any time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Message {
    #[default]
    Unsent,
    Sent,
    /// Its answer may arrive.
    Answered,
}

/// A promise that a step breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// Two claims rely on one shard at the same time.
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

    /// Whether a read proves that `session` has ended: a larger token, or its token without a lessee.
    pub(crate) fn has_ended(&self, session: Session) -> bool {
        let row = &self.workers[usize::from(session.worker)].row;
        row.token > session.token || row.token == session.token && !row.has_lessee
    }
}

/// The rows, and the claims that hold shards.
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
