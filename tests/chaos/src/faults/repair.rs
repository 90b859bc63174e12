//! The repairs that end the overlapping faults.

use crate::judge::ledger::Part;

/// A repair that is not yet made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Repair {
    WakeWorker(usize),
    /// Repairs the link from a worker to a server.
    Heal(usize, usize),
    HealWithLoss(usize, usize),
    WakeServer(usize),
    StartServer(usize),
    FreeMemory(usize),
    /// Deletes a list under a lease's name. This repair comes last, since it needs all servers.
    DeleteKey(usize),
}

impl Repair {
    /// The part that does not work until the repair.
    pub(crate) fn part(self) -> Option<Part> {
        match self {
            Self::WakeWorker(worker) => Some(Part::Process(worker)),
            Self::Heal(worker, server) | Self::HealWithLoss(worker, server) => {
                Some(Part::Link(worker, server))
            }
            Self::WakeServer(server) | Self::StartServer(server) | Self::FreeMemory(server) => {
                Some(Part::Server(server))
            }
            Self::DeleteKey(_) => None,
        }
    }
}
