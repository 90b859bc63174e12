//! A file of SQLite that workers share.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use lease_test_servers::sync::lock;
use rusqlite::{Connection, ErrorCode};

use crate::failure::Failure;

/// A folder with the file, and a connection that locks the file as another program would. A drop removes the
/// folder.
#[derive(Debug)]
pub(crate) struct SharedFile {
    folder: PathBuf,
    /// The mutex allows the threads of a run to share this value.
    other_program: Mutex<Option<Connection>>,
}

impl SharedFile {
    pub(crate) fn new() -> Result<Self, Failure> {
        let name = format!("lease-chaos-sqlite-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, other_program: Mutex::default() })
    }

    pub(crate) fn address(&self) -> String {
        format!("sqlite://{}", self.path().display())
    }

    /// Locks the file, as a program with a long write transaction would. Returns `false` if another
    /// process keeps the file locked for [`BRIEF`]. A fault may have stopped that process, and then only
    /// a repair ends its lock.
    pub(crate) fn lock(&self) -> Result<bool, Failure> {
        let mut other = lock(&self.other_program);
        let program = match other.take() {
            Some(program) => program,
            None => Connection::open(self.path())?,
        };
        program.busy_timeout(BRIEF)?;
        let locked = program.execute_batch("BEGIN IMMEDIATE");
        *other = Some(program);
        match locked {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(false),
            locked => Ok(locked.map(|()| true)?),
        }
    }

    pub(crate) fn unlock(&self) -> Result<(), Failure> {
        if let Some(program) = &*lock(&self.other_program) {
            program.execute_batch("ROLLBACK")?;
        }
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.folder.join("leases.db")
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// The time limit for locking the file. A worker's write locks the file for a shorter time.
const BRIEF: Duration = Duration::from_millis(200);
