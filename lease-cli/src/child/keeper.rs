//! The keeper: a process that kills the command's group if `lease` dies, or if `lease` hangs until the deadline.
//!
//! The keeper leads the group. So the group's id stays valid as long as `lease` has not reaped the keeper, and a
//! signal never reaches another group. `lease` sends each new deadline through a pipe. The end of the pipe means that
//! `lease` has died.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write, stdin};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, getppid, pidfd_open, pidfd_send_signal,
    waitid,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::child::THIS_PROGRAM;
use crate::child::group::{Group, Status};
use crate::child::running_time::RunningTime;
use crate::exit::Exit;

/// The side of `lease`: a running keeper.
#[derive(Debug)]
pub(crate) struct Keeper {
    process: Child,
    pipe: ChildStdin,
}

impl Keeper {
    /// Starts the keeper. Without `shared`, the keeper leads a group of its own, and the command joins it. With
    /// `shared`, the command runs in the group of `lease`, and the keeper leads an empty one.
    pub(crate) fn start(shared: Option<&Group>) -> io::Result<Self> {
        let mut command = Command::new(THIS_PROGRAM);
        command.arg0("lease").arg(AS_KEEPER).process_group(0);
        command.arg(getpid().as_raw_nonzero().to_string());
        if let Some(Group::Shared { lessee }) = shared {
            command.arg(lessee);
        }
        // Another `lease` that runs this one must not take the keeper for a process of its command.
        command.env_remove("LEASE_LESSEE");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // The keeper inherits the mask. A signal to the group is for the command, and may come at once.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let process = command.spawn();
        mask.thread_set_mask()?;
        let mut process = process?;
        let Some(pipe) = process.stdin.take() else {
            return Err(io::Error::other("the keeper has no pipe"));
        };
        // A stopped keeper must not block heartbeats.
        ioctl_fionbio(&pipe, true)?;
        Ok(Self { process, pipe })
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Tells the keeper when the group must be dead. A keeper that is stopped or dead does not learn it.
    pub(crate) fn set_limit(&mut self, limit: RunningTime) {
        drop(self.pipe.write_all(&limit.nanos().to_le_bytes()));
    }

    /// Returns whether the keeper has died. Does not reap it, so that its group's id stays valid.
    pub(crate) fn has_died(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(self.id()), options), Ok(None))
    }

    /// Ends the keeper, which then kills no process.
    pub(crate) fn dismiss(mut self) {
        drop(self.pipe.write_all(&DISMISSED.to_le_bytes()));
        // Also ends a stopped keeper. The group has no other process.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Runs the keeper. `arguments` have the id of `lease`, and the lessee of a command in a shared group.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.map(|argument| argument.into_string().ok());
    let lease = arguments.next().flatten().and_then(|id| Pid::from_raw(id.parse().ok()?));
    let lessee = arguments.next().flatten();
    let group = lessee.map_or_else(Group::of_this_process, |lessee| Group::Shared { lessee });
    if let Ok(Ended::Dismissed) = keep() {
        return Exit::SUCCESS.into();
    }
    kill_command_of(lease);
    // Kills this process, too, if it leads the group.
    group.kill_all();
    Exit::LOST.into()
}

/// Why the keeper ends.
enum Ended {
    Dismissed,
    /// The limit has passed, or `lease` has died.
    Kill,
}

fn keep() -> io::Result<Ended> {
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    // Without a buffer, since `poll` does not see what is in it.
    let mut pipe = File::from(stdin().as_fd().try_clone_to_owned()?);
    let mut message = [0; size_of::<u64>()];
    loop {
        let mut events = [PollFd::new(&pipe, PollFlags::IN), PollFd::new(&timer, PollFlags::IN)];
        match poll(&mut events, None) {
            Err(rustix::io::Errno::INTR) => continue,
            waited => waited?,
        };
        let [from_pipe, from_timer] = events.map(|event| !event.revents().is_empty());
        // The pipe first: it may have a later limit.
        if from_pipe {
            if pipe.read_exact(&mut message).is_err() {
                return Ok(Ended::Kill);
            }
            let nanos = u64::from_le_bytes(message);
            if nanos == DISMISSED {
                return Ok(Ended::Dismissed);
            }
            let it_value = RunningTime::from_nanos(nanos).timespec();
            let once = Itimerspec { it_interval: Timespec::default(), it_value };
            timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &once)?;
        } else if from_timer {
            return Ok(Ended::Kill);
        }
    }
}

/// Kills the command of a `lease` that hangs, even if the command has left the group.
fn kill_command_of(lease: Option<Pid>) {
    let Some(lease) = lease.filter(|lease| getppid() == Some(*lease)) else {
        // `lease` has died, and the command with it.
        return;
    };
    let id = lease.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?));
    for child in children.filter(|child| *child != getpid()) {
        let Ok(opened) = pidfd_open(child, PidfdFlags::empty()) else { continue };
        // `lease` may have reaped it meanwhile, and another process may have its id.
        if Status::of(child).is_some_and(|status| status.parent == id.get()) {
            // An error means that it has ended.
            let _ended = pidfd_send_signal(opened, Signal::KILL);
        }
    }
}

pub(super) const AS_KEEPER: &str = "--keep-group";
/// In place of a limit: `lease` needs the keeper no longer.
const DISMISSED: u64 = 0;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn keeper_blocks_signals_from_its_start() {
        // Without the arguments of a keeper, this test's program ends at once. It is not reaped, and has its mask.
        let keeper = Keeper::start(None).unwrap();

        let path = format!("/proc/{}/status", keeper.id().as_raw_nonzero());
        let status = fs::read_to_string(path).unwrap();
        let own = fs::read_to_string("/proc/thread-self/status").unwrap();
        keeper.dismiss();

        let blocked = |status: &str| {
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (Signal::TERM.as_raw() - 1)) != 0
        };
        assert!(blocked(&status), "{status}");
        assert!(!blocked(&own), "{own}");
    }
}
