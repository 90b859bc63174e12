//! Children that do not outlive the daemon, however it ends.
//!
//! On Linux, a process can ask to be killed when its parent's thread ends, but only for itself. So
//! each child is started as this program again, which asks for that, and then becomes the child.

use std::process::ExitCode;

use lease_kinesis::multilang::daemon::ChildCommand;

/// The command by which a child is started that does not outlive this process. On other systems,
/// it is told of the end by its stdin alone.
#[cfg(target_os = "linux")]
pub(crate) fn bound_to_this(command: ChildCommand) -> ChildCommand {
    let own_id = std::process::id().to_string();
    // Of this very program, also where its file was replaced meanwhile.
    command.run_by("/proc/self/exe", [AS_CHILD_OF.to_owned(), own_id])
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn bound_to_this(command: ChildCommand) -> ChildCommand {
    command
}

/// Becomes a child, where this is what the program was started for; answers only where it cannot.
#[cfg(target_os = "linux")]
#[expect(clippy::print_stderr, reason = "read by the daemon, into its log")]
pub(crate) fn run_as_child() -> Option<ExitCode> {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use rustix::process::{Signal, getppid, set_parent_process_death_signal};

    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != AS_CHILD_OF {
        return None;
    }
    let (parent, program) = (arguments.next()?, arguments.next()?);
    let asked = set_parent_process_death_signal(Some(Signal::KILL));
    let is_there = getppid().is_some_and(|id| id.to_string() == parent.to_string_lossy());
    if let (Ok(()), false) = (asked, is_there) {
        // The daemon has ended before that was asked for.
        return Some(ExitCode::FAILURE);
    }
    let error = Command::new(&program).args(arguments).exec();
    eprintln!("multilang-daemon: {} is not run: {error}", program.display());
    Some(ExitCode::from(127))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn run_as_child() -> Option<ExitCode> {
    None
}

#[cfg(target_os = "linux")]
const AS_CHILD_OF: &str = "--as-child-of";
