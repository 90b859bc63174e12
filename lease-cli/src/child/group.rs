//! The processes that a command consists of.

use std::fs::{self, File};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process, kill_process_group};
use rustix::termios::tcgetpgrp;

/// The processes of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Group {
    /// A process group of its own. The keeper leads it.
    Own { id: Pid },
    /// The command starts in the process group of `lease`, in which it has the terminal. The environment of the
    /// command's processes contains the lessee, which no other process has. So they may also be in other groups, as
    /// the jobs of an interactive shell are.
    Shared { lessee: String },
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

    /// Whether a signal to all processes of the command reaches `process`.
    pub(crate) fn has(&self, process: Pid) -> bool {
        let Some(status) = Status::of(process) else { return false };
        if matches!(status.state, 'Z' | 'X') || process == getpid() {
            return false;
        }
        match self {
            Self::Own { id } => status.group == id.as_raw_nonzero().get() && process != *id,
            Self::Shared { lessee } => has_lessee(process, lessee),
        }
    }
}

/// What Linux shows of a process.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Status {
    state: char,
    pub(super) parent: i32,
    /// -1 while the process is being reaped.
    group: i32,
}

impl Status {
    pub(super) fn of(process: Pid) -> Option<Self> {
        Self::read(&fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?)
    }

    fn read(stat: &str) -> Option<Self> {
        // The program's name is in parentheses, and may contain any character.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        Some(Self { state, parent, group: fields.next()?.parse().ok()? })
    }
}

/// Whether a terminal sends its signals to this process.
pub(super) fn has_terminal() -> bool {
    // An error means that this process has no controlling terminal.
    let Ok(terminal) = File::open("/dev/tty") else { return false };
    tcgetpgrp(terminal).is_ok_and(|foreground| foreground == getpgrp())
}

fn has_lessee(process: Pid, lessee: &str) -> bool {
    let path = format!("/proc/{}/environ", process.as_raw_nonzero());
    let Ok(environment) = fs::read(path) else { return false };
    let variable = format!("LEASE_LESSEE={lessee}");
    environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_a_process_that_is_being_reaped_is_read() {
        let status = Status::read("28869 (a) S) b) X 0 -1 -1 0 -1 4228108");

        assert_eq!(status, Some(Status { state: 'X', parent: 0, group: -1 }));
    }
}
