//! The launcher: the process that becomes the command.
//!
//! Linux kills a process when its parent's thread ends, if the process itself has asked for this. So `lease` starts
//! this program again. The new process asks, checks that `lease` and the lease still last, and executes the command.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write, stderr};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use crate::child::THIS_PROGRAM;
use crate::child::running_time::RunningTime;
use crate::exit::Exit;

/// Makes the command that starts `command` in a launcher. If `limit` has passed by then, the launcher exits with
/// `lost`.
pub(crate) fn launcher(command: &[OsString], limit: RunningTime, lost: u8) -> Command {
    let mut launcher = Command::new(THIS_PROGRAM);
    launcher.arg0("lease").arg(AS_LAUNCHER);
    launcher.arg(getpid().as_raw_nonzero().to_string()).arg(limit.nanos().to_string());
    launcher.arg(lost.to_string()).args(command);
    launcher
}

/// Executes the command. Returns only if it cannot be executed.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(parent), Some(limit), Some(lost), Some(program)) =
        (arguments.next(), arguments.next(), arguments.next(), arguments.next())
    else {
        return Exit::USAGE.into();
    };
    let asked = set_parent_process_death_signal(Some(Signal::KILL));
    let is_alive = getppid().is_some_and(|id| parent == *id.to_string());
    if asked.is_err() || !is_alive || is_over(&limit) {
        // `lease` has ended before this process asked, or the lease has.
        let lost = lost.to_str().and_then(|lost| lost.parse().ok());
        return lost.map_or(Exit::LOST, Exit::code).into();
    }
    // The standard library gives the command the default disposition of SIGPIPE again.
    let error = Command::new(&program).args(arguments).exec();
    let exit = match error.kind() {
        ErrorKind::NotFound => Exit::NOT_FOUND,
        _ => Exit::NOT_EXECUTABLE,
    };
    // The exit code suffices if nobody reads the message.
    drop(writeln!(stderr(), "lease: {} cannot be executed: {error}", program.display()));
    exit.into()
}

fn is_over(limit: &OsStr) -> bool {
    let limit = limit.to_str().and_then(|limit| limit.parse().ok()).map(RunningTime::from_nanos);
    limit.is_none_or(|limit| RunningTime::now() >= limit)
}

pub(super) const AS_LAUNCHER: &str = "--launch-command";
