//! One state: the rows of the table, and what each process knows.

use std::fmt;

pub(crate) const WORKERS: usize = 3;
pub(crate) const SESSIONS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    pub(crate) rows: [Row; WORKERS],
    /// The row `changes`. Zero stands for an absent counter.
    pub(crate) counters: [[u8; SESSIONS]; WORKERS],
    pub(crate) shard: Holder,
    pub(crate) processes: [Process; WORKERS],
    pub(crate) faults: Faults,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Session {
    pub(crate) worker: usize,
    pub(crate) token: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Holder {
    #[default]
    Free,
    Session(Session),
    /// A lease with a ttl.
    Expiring,
}

/// A worker's own row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Row {
    /// The token of the last session; zero before the first.
    pub(crate) token: u8,
    pub(crate) is_held: bool,
    pub(crate) has_expired: bool,
    pub(crate) is_absent: bool,
    pub(crate) notices: Notices,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Notices {
    pub(crate) last: u8,
    /// The number of the latest notices that the row has. There is one shard, so all notices name it.
    pub(crate) kept: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a process")]
pub(crate) struct Process {
    pub(crate) is_alive: bool,
    /// The token of its session; zero without a session.
    pub(crate) token: u8,
    pub(crate) reads: bool,
    pub(crate) notices: Notices,
    pub(crate) must_write: bool,
    pub(crate) must_count: bool,
    /// The counter of its session has never exceeded this number.
    pub(crate) counted: u8,
    /// The counter has begun again, and the worker must set it to `counted`.
    pub(crate) must_restore: bool,
    pub(crate) claim: Unclear,
    pub(crate) listed: [[Listed; SESSIONS]; WORKERS],
    /// The holder of the shard, as last read.
    pub(crate) shard: Holder,
    pub(crate) is_doubtful: bool,
    pub(crate) must_list: bool,
}

/// A claim without an answer: lease-core repeats it, and releases the shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) enum Unclear {
    #[default]
    None,
    /// The claim may hold the shard.
    Pending,
    /// The shard was released, and the worker has not read that yet.
    Released,
}

/// What a process knows of a session of another worker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Listed {
    pub(crate) is_known: bool,
    pub(crate) count: u8,
    /// The count when the row was last read.
    pub(crate) read: Option<u8>,
    pub(crate) noticed: u8,
    pub(crate) token: u8,
    pub(crate) is_member: bool,
    pub(crate) has_ended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Faults {
    pub(crate) crashes: u8,
    pub(crate) restarts: u8,
    pub(crate) lost_sessions: u8,
    pub(crate) removed_rows: u8,
    pub(crate) unclear_claims: u8,
    pub(crate) hand_overs: u8,
    pub(crate) unanswered_counts: u8,
    pub(crate) claims_of_earlier_mode: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// No live worker reads the shard.
    Orphaned,
    /// A live worker believes that another session holds the shard, or none.
    Mistaken,
    /// A worker repeats a claim that is refused again and again.
    Repeated,
}

impl Violation {
    pub(crate) const ALL: [Self; 3] = [Self::Orphaned, Self::Mistaken, Self::Repeated];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, name) in (0..WORKERS).zip('A'..) {
            let (row, process) = (&self.rows[place], &self.processes[place]);
            if row.token == 0 {
                continue;
            }
            let row_state = match (row.is_absent, row.is_held, row.has_expired) {
                (true, ..) => "absent",
                (_, false, _) => "ended",
                (.., true) => "expired",
                _ => "held",
            };
            write!(f, " {name}{}:{row_state}", row.token)?;
            if process.is_alive {
                write!(f, "/{} sees {:?}", process.token, process.shard)?;
            }
        }
        write!(f, "  shard: {:?}", self.shard)
    }
}
