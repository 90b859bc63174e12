//! The processes that a command consists of.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process, kill_process_group};

/// The processes of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Group {
    /// A process group of its own. The keeper leads it.
    Own { id: Pid },
    /// The process group of `lease`, in which the command has the terminal. The environment of the command's
    /// processes contains the lessee, which no other process has.
    Shared { id: Pid, lessee: String },
}

impl Group {
    /// The group that this process leads.
    pub(crate) fn of_this_process() -> Self {
        Self::Own { id: getpgrp() }
    }

    /// Sends `signal` to all processes of the command.
    pub(crate) fn signal(&self, signal: Signal) {
        match self {
            Self::Own { id } => {
                // An error means that the group is empty.
                let _empty = kill_process_group(*id, signal);
            }
            Self::Shared { .. } => {
                for process in self.members() {
                    // An error means that the process has ended.
                    let _ended = kill_process(process, signal);
                }
            }
        }
    }

    /// Kills all processes of the command, and the processes that they start meanwhile.
    pub(crate) fn kill_all(&self) {
        if let Self::Own { .. } = self {
            // One call reaches every process of a group.
            self.signal(Signal::KILL);
            return;
        }
        for _round in 0..1000 {
            let members = self.members();
            if members.is_empty() {
                return;
            }
            for process in members {
                let _ended = kill_process(process, Signal::KILL);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the processes of the command that have not ended, without the keeper.
    pub(crate) fn members(&self) -> Vec<Pid> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter_map(Pid::from_raw).filter(|process| self.has(*process)).collect()
    }

    fn has(&self, process: Pid) -> bool {
        let Some((state, group)) = state_and_group(process) else { return false };
        if matches!(state, 'Z' | 'X') || process == getpid() {
            return false;
        }
        match self {
            Self::Own { id } => group == id.as_raw_nonzero().get() && process != *id,
            Self::Shared { id, lessee } => {
                group == id.as_raw_nonzero().get() && has_lessee(process, lessee)
            }
        }
    }
}

/// Reads the state and the process group of a process.
fn state_and_group(process: Pid) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The program's name is in parentheses, and may contain any character.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(1)?.parse().ok()?))
}

fn has_lessee(process: Pid, lessee: &str) -> bool {
    let path = format!("/proc/{}/environ", process.as_raw_nonzero());
    let Ok(environment) = fs::read(path) else { return false };
    let variable = format!("LEASE_LESSEE={lessee}");
    environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
}
