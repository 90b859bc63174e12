//! PostgreSQL servers for tests: real processes on their own data, stopped when their guard is
//! dropped.
//!
//! Start at [`PostgresServer`]. [`PgBouncer`] pools its connections. If the tests run as root, the
//! servers run as the user `postgres` of the Debian package, since PostgreSQL and PgBouncer refuse
//! to run as root.

mod pooler;
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use self::pooler::PgBouncer;
pub use self::server::PostgresServer;

/// The timeout of stores in most tests. A busy machine may stop a server for seconds.
pub const PATIENT: Duration = Duration::from_secs(20);

/// A folder that the servers' user may write to. A drop removes the folder.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str, port: u16) -> Self {
        let path = std::env::temp_dir().join(format!("lease-{name}-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for the server");
        give(&path);
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

pub(crate) fn give(path: &Path) {
    if is_root() {
        let given = Command::new("chown").arg(USER).arg(path).status();
        assert!(given.is_ok_and(|status| status.success()), "{USER} owns {}", path.display());
    }
}

pub(crate) fn unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    // `setpriv` replaces itself with the program. So the child's process id is the id of the
    // program.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]).arg(program);
    command
}

fn is_root() -> bool {
    let user = Command::new("id").arg("-u").output().expect("the program id");
    user.stdout.trim_ascii() == b"0"
}

const USER: &str = "postgres";
