//! Makes children end with the daemon, even if the daemon is killed. See
//! docs/design/012-multilang-children.md.

use std::process::ExitCode;

use lease_multilang::daemon::ChildCommand;

/// On other systems than Linux, a child can only notice the end of its stdin.
#[cfg(target_os = "linux")]
pub(crate) fn bound_to_this_process(command: ChildCommand) -> ChildCommand {
    let own_id = std::process::id().to_string();
    // This path names the running program, even if another file has replaced its file.
    command.run_by("/proc/self/exe", [AS_CHILD_OF.to_owned(), own_id])
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn bound_to_this_process(command: ChildCommand) -> ChildCommand {
    command
}

/// Returns `None` in a daemon. Returns an exit code if the child's command cannot be executed.
#[cfg(target_os = "linux")]
#[expect(clippy::print_stderr, reason = "the daemon logs it")]
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
    let is_alive = getppid().is_some_and(|id| id.to_string() == parent.to_string_lossy());
    if let (Ok(()), false) = (asked, is_alive) {
        // The daemon ended before this process made the request.
        return Some(ExitCode::FAILURE);
    }
    let error = Command::new(&program).args(arguments).exec();
    eprintln!("multilang-daemon: cannot execute {}: {error}", program.display());
    Some(ExitCode::from(127))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn run_as_child() -> Option<ExitCode> {
    None
}

#[cfg(target_os = "linux")]
const AS_CHILD_OF: &str = "--as-child-of";
