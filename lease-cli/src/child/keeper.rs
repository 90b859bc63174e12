//! The keeper: a process that kills the command's group if `lease` dies, or if `lease` hangs until the deadline.
//!
//! The keeper leads the group. So the group's id stays valid as long as `lease` has not reaped the keeper, and a
//! signal never reaches another group. `lease` sends each new deadline through a pipe. The end of the pipe means that
//! `lease` has died.

use std::ffi::OsString;
use std::io::{self, Read, Write, stdin};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::child::THIS_PROGRAM;
use crate::child::group::Group;
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
    /// `shared`, the command runs in this group, and the keeper leads an empty one.
    pub(crate) fn start(shared: Option<&Group>) -> io::Result<Self> {
        let mut command = Command::new(THIS_PROGRAM);
        command.arg0("lease").arg(AS_KEEPER).process_group(0);
        if let Some(Group::Shared { id, lessee }) = shared {
            command.arg(id.as_raw_nonzero().to_string()).arg(lessee);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut process = command.spawn()?;
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

/// Runs the keeper. `arguments` name a shared group and the lessee, or are empty.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    // A signal to the group is for the command.
    if SigSet::all().thread_block().is_err() {
        return Exit::OWN_FAULT.into();
    }
    let shared = arguments.next().zip(arguments.next()).and_then(|(id, lessee)| {
        let id = Pid::from_raw(id.to_str()?.parse().ok()?)?;
        Some(Group::Shared { id, lessee: lessee.into_string().ok()? })
    });
    let group = shared.unwrap_or_else(Group::of_this_process);
    if let Ok(Ended::Dismissed) = keep() {
        return Exit::SUCCESS.into();
    }
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
    let mut pipe = stdin().lock();
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

pub(super) const AS_KEEPER: &str = "--keep-group";
/// In place of a limit: `lease` needs the keeper no longer.
const DISMISSED: u64 = 0;
