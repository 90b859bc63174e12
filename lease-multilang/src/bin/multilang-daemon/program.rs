//! Whether what is to be run for each shard is there at all.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lease_kinesis::multilang::daemon::ChildCommand;

use crate::failure::Failure;

/// Looks for the program as the system will, so that a wrong name is told at the start, and not
/// once for each shard.
pub(crate) fn is_there(command: &ChildCommand) -> Result<(), Failure> {
    let name = command.program();
    let program = Path::new(name);
    let places = if program.components().count() > 1 {
        vec![program.to_owned()]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(program)).collect()
    };
    let mut files = places.iter().filter(|place| place.is_file());
    if files.clone().any(|file| is_executable(file)) {
        return Ok(());
    }
    let why = match (files.next(), places.as_slice()) {
        (Some(file), _) => {
            let file = file.display();
            format!("{file} is not executable: `chmod +x {file}`, or put its interpreter before it")
        }
        (None, [_]) if program.is_dir() => format!("{name} is a folder: name the program in it"),
        (None, [_]) if program.is_absolute() => format!("there is no program {name}"),
        (None, [_]) => format!("there is no program {name} below the folder of this process"),
        (None, _) => format!("there is no program {name} in any folder of PATH"),
    };
    Err(Failure::other(format!("executableName = {command}: {why}")))
}

/// Whether it may be run by anybody.
fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|of| of.permissions().mode() & 0o111 != 0)
}
