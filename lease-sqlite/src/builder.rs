//! Sets up a `SqliteStore`: its options, their defaults, and the checks before it opens.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lease_core::StoreError;
use tokio::sync::oneshot;

use crate::error::Fault;
use crate::file::opening;
use crate::file::settings::Settings;
use crate::machine::{Machine, ThisMachine};
use crate::statements::Statements;
use crate::store::SqliteStore;

impl SqliteStore {
    /// Opens the file at `path`, and creates it if it does not exist.
    ///
    /// SQLite keeps two more files beside it, `…-wal` and `…-shm`. Give leases a separate file, in a folder
    /// that exists, on a local disk.
    ///
    /// # Errors
    ///
    /// If the file cannot be written, belongs to another program or a later version, is on a network file
    /// system, or was replaced while another process still uses the earlier file. The message says how to
    /// correct the fault.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the file. The file may have been created.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        Self::builder(path).open().await
    }

    /// Sets up a store in the file at `path`.
    pub fn builder(path: impl Into<PathBuf>) -> SqliteStoreBuilder {
        SqliteStoreBuilder {
            path: path.into(),
            timeout: DEFAULT_TIMEOUT,
            machine: None,
            statements: Statements::default(),
        }
    }
}

/// Sets up a [`SqliteStore`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use lease_sqlite::SqliteStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(&folder)?;
/// let store = SqliteStore::builder("leases.db")
///     .with_timeout(Duration::from_secs(5)) // another program writes long transactions
///     .open()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it opens the file"]
pub struct SqliteStoreBuilder {
    path: PathBuf,
    timeout: Duration,
    machine: Option<Arc<dyn Machine>>,
    statements: Statements,
}

impl SqliteStoreBuilder {
    /// Limits the wait for the file's write lock to `timeout`: 1 ms to an hour, by default 1 s.
    ///
    /// The default allows for many processes that write at the same time. Choose a time-out well below a
    /// third of the ttl.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Reads boot time, boot id and wall clock from `machine`: for tests.
    #[cfg(feature = "simulation")]
    #[cfg_attr(docsrs, doc(cfg(feature = "simulation")))]
    pub fn with_machine(mut self, machine: Arc<dyn Machine>) -> Self {
        self.machine = Some(machine);
        self
    }

    /// Replaces `old` by `new` in the statement `name`, so that a test sees a promise break.
    ///
    /// # Panics
    ///
    /// If the statement `name` does not contain `old` exactly once.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn with_sabotage(mut self, name: &str, old: &str, new: &str) -> Self {
        assert!(self.statements.replace(name, old, new), "{name} should have {old:?} once");
        self
    }

    /// Opens the file and checks it.
    ///
    /// # Errors
    ///
    /// As for [`SqliteStore::open`], and if the time-out is out of range.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the file. The file may have been created.
    pub async fn open(self) -> Result<SqliteStore, StoreError> {
        if !(SHORTEST_TIMEOUT..=LONGEST_TIMEOUT).contains(&self.timeout) {
            return Err(Fault::misconfigured(format!(
                "time-out {:?} is out of range: choose 1 ms to 1 hour",
                self.timeout
            ))
            .into());
        }
        let machine = match self.machine {
            Some(machine) => machine,
            None => Arc::new(ThisMachine::new()?),
        };
        let statements = Arc::new(self.statements);
        let settings = Settings { machine, statements, timeout: self.timeout };
        let (path, (reply, opened)) = (self.path, oneshot::channel());
        let open = move || {
            drop(reply.send(opening::open(&path, &settings)));
        };
        // A separate thread, because the file may be locked for the whole time-out.
        let started = thread::Builder::new().name("lease-sqlite-open".to_owned()).spawn(open);
        drop(started.map_err(|error| {
            Fault::unavailable(format!(
                "no thread could be started ({error}): raise the limit of threads"
            ))
        })?);
        let ended = |_| Err(Fault::unavailable("the thread that opens the file has ended"));
        Ok(SqliteStore::start(opened.await.unwrap_or_else(ended)?)?)
    }
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);
