//! Checks that the child program exists.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lease_multilang::daemon::ChildCommand;

use crate::failure::Failure;

/// Searches for the program as the system does, so that the daemon reports a wrong name once, at its start.
pub(crate) fn check_exists(command: &ChildCommand) -> Result<(), Failure> {
    let name = command.program();
    let program = Path::new(name);
    let candidates = if program.components().count() > 1 {
        vec![program.to_owned()]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(program)).collect()
    };
    let mut files = candidates.iter().filter(|candidate| candidate.is_file());
    if files.clone().any(|file| is_executable(file)) {
        return Ok(());
    }
    let reason = match (files.next(), candidates.as_slice()) {
        (Some(file), _) => {
            let file = file.display();
            format!("{file} is not executable: `chmod +x {file}`, or put its interpreter before it")
        }
        (None, [_]) if program.is_dir() => format!("{name} is a folder: name the program in it"),
        (None, [_]) if program.is_absolute() => format!("there is no program {name}"),
        (None, [_]) => {
            format!("there is no program {name} in the working directory of this process")
        }
        (None, _) => format!("there is no program {name} in any folder of PATH"),
    };
    Err(Failure::other(format!("executableName = {command}: {reason}")))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|of| of.permissions().mode() & 0o111 != 0)
}
