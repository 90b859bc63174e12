//! The repairs that end the overlapping faults.

use crate::judge::ledger::Part;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Repair {
    WakeWorker(usize),
    Heal(usize, usize),
    HealWithLoss(usize, usize),
    WakeServer(usize),
    StartServer(usize),
    FreeMemory(usize),
    /// This repair comes last, since it needs all servers.
    DeleteKey(usize),
}

impl Repair {
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
