//! Whether what is to be run for each shard is there at all.

use std::path::{Path, PathBuf};

use lease_kinesis::multilang::daemon::ChildCommand;

use crate::failure::Failure;

/// Looks for the program as the system will, so that a wrong name is told at the start, and not
/// once for each shard.
pub(crate) fn is_there(command: &ChildCommand) -> Result<(), Failure> {
    let program = Path::new(command.program());
    let found = if program.components().count() > 1 {
        program.is_file()
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder: PathBuf| folder.join(program).is_file())
    };
    if found {
        return Ok(());
    }
    let name = command.program();
    Err(Failure::other(format!("executableName = {command}: there is no program {name}")))
}
