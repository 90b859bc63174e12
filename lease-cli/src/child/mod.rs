//! The command of `lease run`: its start, its process group, and its end.
//!
//! Start with [`supervisor`]: it starts the command, forwards signals, and stops the command in time. Two helper
//! processes execute this program again: [`keeper`] kills the group if `lease` dies or hangs, and [`launcher`]
//! binds the command to the life of its parent. [`group`] finds and signals the processes of the group.

mod group;
mod keeper;
mod launcher;
pub(crate) mod running_time;
pub(crate) mod supervisor;

use std::process::ExitCode;

/// Runs this process as a helper, if `lease` has started it as one.
pub(crate) fn run_as_helper() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    arguments.next()?;
    let first = arguments.next()?;
    if first == keeper::AS_KEEPER {
        return Some(keeper::run(arguments));
    }
    (first == launcher::AS_LAUNCHER).then(|| launcher::run(arguments))
}

/// This path names the running program, even if its file has been replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";
