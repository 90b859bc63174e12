//! Sets up a `PostgresStore`: its options, their defaults, and the checks before it connects.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lease_core::StoreError;
use tokio::select;
use tokio::time::sleep;

use crate::connection::address::Address;
use crate::connection::batches::Batches;
use crate::connection::checks::{check, is_of_earlier_version};
use crate::connection::database::{Database, Lane, lock_timeout};
use crate::connection::listener::Listener;
use crate::connection::tls::{Tls, tls};
use crate::error::ServerFault;
use crate::recent_keys::RecentKeys;
use crate::statements::{self, Statements, TableName};
use crate::store::PostgresStore;

impl PostgresStore {
    /// Connects to the server at `url`: `postgres://user:password@host:port/database`. The table must exist.
    ///
    /// # Errors
    ///
    /// If the server is unreachable, refuses the user, has no table, or has settings that would lose leases.
    /// The message says how to correct the fault.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Sets up a store on the server at `url`.
    ///
    /// Commas separate several hosts, as in `postgres://user@a,b:5433/database`. Then connections go to the
    /// first host that accepts writes.
    pub fn builder(url: impl Into<String>) -> PostgresStoreBuilder {
        PostgresStoreBuilder {
            url: url.into(),
            listen_url: None,
            table: "lease".to_owned(),
            timeout: Duration::from_secs(1),
            connections: 8,
            roots: None,
            #[cfg(feature = "sabotage")]
            altered: Vec::new(),
            #[cfg(feature = "sabotage")]
            batches_only: false,
        }
    }
}

/// Sets up a [`PostgresStore`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use lease_postgres::PostgresStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lease_core::StoreError> {
/// # let Some(server) = lease_test_servers::postgres::PostgresServer::start() else { return Ok(()) };
/// let url = "postgres://leases:secret@localhost/billing";
/// # let url = server.url();
/// let builder = PostgresStore::builder(url)
///     .with_table("billing_lease")
///     .with_timeout(Duration::from_secs(5)); // the server is far away
/// builder.create_table().await?; // once, by a role that may create tables
/// let store = builder.connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct PostgresStoreBuilder {
    url: String,
    listen_url: Option<String>,
    table: String,
    timeout: Duration,
    connections: usize,
    roots: Option<Vec<u8>>,
    #[cfg(feature = "sabotage")]
    altered: Vec<[String; 3]>,
    #[cfg(feature = "sabotage")]
    batches_only: bool,
}

impl PostgresStoreBuilder {
    /// Sets the table: `table` or `schema.table`. The default is `lease`, in the first schema of the role's
    /// `search_path`. Stores with different tables have different leases.
    pub fn with_table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Limits each call to `timeout`, from 1 ms to an hour. Defaults to 1 s.
    ///
    /// A commit waits for the server's disk, and with synchronous replication for a standby. The wait usually
    /// takes a few milliseconds. Choose a time-out well below a third of the ttl.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Opens at most `connections` connections: 2 to 1,000, by default 8. After the first wait of a caller,
    /// one more connection listens for releases.
    ///
    /// A connection is busy for one round trip per request. Claims leave two connections to heartbeats.
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets another URL for the connection that listens for releases. Use it behind a pooler.
    ///
    /// A pooler in transaction mode loses notifications. If no notification arrives, the store logs a
    /// warning, and waiters poll.
    pub fn with_listen_url(mut self, url: impl Into<String>) -> Self {
        self.listen_url = Some(url.into());
        self
    }

    /// Trusts the root certificates in `pem` instead of the system's certificates.
    #[cfg(feature = "tls")]
    pub fn with_root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// Replaces a part of a statement, so that a test sees a promise break.
    #[cfg(feature = "sabotage")]
    #[doc(hidden)]
    pub fn with_altered_statement(mut self, name: &str, part: &str, replacement: &str) -> Self {
        self.altered.push([name, part, replacement].map(str::to_owned));
        self
    }

    /// Sends even a single claim or release by the statement for several.
    #[cfg(feature = "sabotage")]
    #[doc(hidden)]
    pub fn with_batches_only(mut self) -> Self {
        self.batches_only = true;
        self
    }

    /// Returns the statement that creates the table, unless it exists.
    ///
    /// # Errors
    ///
    /// If the name of the table is not valid.
    ///
    /// # Examples
    ///
    /// ```
    /// use lease_postgres::PostgresStore;
    ///
    /// let builder = PostgresStore::builder("postgres://localhost/billing");
    /// let migration = builder.table_sql()?;
    /// assert!(migration.starts_with("CREATE TABLE IF NOT EXISTS \"lease\""));
    /// # Ok::<_, lease_core::StoreError>(())
    /// ```
    pub fn table_sql(&self) -> Result<String, StoreError> {
        let statements = Statements::new(TableName::parse(&self.table)?);
        Ok(statements.text(statements::TABLE).to_string())
    }

    /// Creates the table, unless it exists. Adds the columns that a table of an earlier version lacks.
    ///
    /// To add columns, PostgreSQL locks the table. While a long transaction uses the table, the call tries
    /// every 400 ms for up to 30 s, or for the time-out if this is longer. An attempt delays requests by at
    /// most 200 ms.
    ///
    /// # Errors
    ///
    /// If the server is unreachable, or the role may not create tables. Only the owner of a table may add
    /// columns.
    ///
    /// # Cancel safety
    ///
    /// The table may or may not have been created.
    pub async fn create_table(&self) -> Result<(), StoreError> {
        let database = self.database(&Address::parse(&self.url)?)?;
        let call = database.statements.call(statements::TABLE);
        let limit = self.timeout.max(CREATE_LIMIT);
        // If two of these statements run at once, PostgreSQL refuses one. Its second attempt finds the table.
        if database.request(Lane::Holders, &call, limit).await.is_err() {
            database.request(Lane::Holders, &call, limit).await?;
        }
        if is_of_earlier_version(&database).await? {
            upgrade(&database, limit).await?;
        }
        Ok(())
    }

    /// Connects, and checks the settings of the server and the table.
    ///
    /// # Errors
    ///
    /// If an option is out of range, or if the server is unreachable, refuses the user, has no table, or
    /// would lose leases. The message says how to correct the fault.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(self) -> Result<PostgresStore, StoreError> {
        let address = Address::parse(&self.url)?;
        let listen_at = match &self.listen_url {
            Some(url) => Address::parse(url)?,
            None => address.clone(),
        };
        let limit = lock_timeout(self.timeout);
        let database = match self.checked(&address.with_lock_timeout(limit)).await {
            // Of several hosts, only the error of the last is known.
            Err(fault) if fault.refuses_options() || address.has_several_hosts() => {
                self.checked(&address).await?
            }
            database => database?,
        };
        let channel = database.statements.table().channel();
        let listener = Listener::new(listen_at, self.tls()?, channel);
        let (database, listener) = (Arc::new(database), Arc::new(listener));
        let [refusals, queued] = [RecentKeys::new(), RecentKeys::new()].map(Arc::new);
        let free_claims = Batches::new(Arc::clone(&database));
        let releases = Batches::new(Arc::clone(&database));
        Ok(PostgresStore { database, listener, free_claims, releases, refusals, queued })
    }

    async fn checked(&self, address: &Address) -> Result<Database, ServerFault> {
        let mut database = self.database(address)?;
        // A pooler may ignore options for the session.
        if check(&database, address).await? == lock_timeout(self.timeout) {
            database.statements.without_lock_timeout();
        }
        Ok(database)
    }

    fn database(&self, address: &Address) -> Result<Database, ServerFault> {
        if !(Duration::from_millis(1)..=MAX_TIMEOUT).contains(&self.timeout) {
            return Err(ServerFault::misconfigured(format!(
                "the time-out {:?} is out of range: 1 ms to {MAX_TIMEOUT:?}",
                self.timeout
            )));
        }
        if !(2..=1000).contains(&self.connections) {
            return Err(ServerFault::misconfigured(format!(
                "{} connections are out of range: 2 to 1000",
                self.connections
            )));
        }
        let statements = self.statements()?;
        let (tls, limit) = (self.tls()?, self.timeout);
        let database = Database::new(address, tls, statements, limit, self.connections)?;
        #[cfg(feature = "sabotage")]
        let database = database.with_batches_only(self.batches_only);
        Ok(database)
    }

    #[cfg_attr(not(feature = "sabotage"), expect(unused_mut, reason = "as with the feature"))]
    fn statements(&self) -> Result<Statements, ServerFault> {
        let mut statements = Statements::new(TableName::parse(&self.table)?);
        #[cfg(feature = "sabotage")]
        for [name, part, replacement] in &self.altered {
            if !statements.alter(name, part, replacement) {
                return Err(ServerFault::misconfigured(format!("no {part:?} in {name:?}")));
            }
        }
        Ok(statements)
    }

    fn tls(&self) -> Result<Tls, ServerFault> {
        tls(self.roots.as_deref())
    }
}

impl fmt::Debug for PostgresStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStoreBuilder")
            .field("table", &self.table)
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

/// Between two attempts, the requests run that waited behind the first attempt.
async fn upgrade(database: &Database, limit: Duration) -> Result<(), ServerFault> {
    let call = database.statements.call(statements::UPGRADE);
    let mut late = pin!(sleep(limit));
    loop {
        let Err(fault) = database.request(Lane::Holders, &call, limit).await else { return Ok(()) };
        if !fault.is_locked() {
            return Err(fault);
        }
        select! {
            // Ends after the limit, even if the pause has ended, too.
            biased;
            () = &mut late => return Err(fault),
            () = sleep(UPGRADE_PAUSE) => (),
        }
    }
}

/// A ttl is at most a day, and a time-out has to be well below the ttl.
const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60);
const CREATE_LIMIT: Duration = Duration::from_secs(30);
/// As long as an attempt, so that requests run for at least half of the time.
const UPGRADE_PAUSE: Duration = Duration::from_millis(200);
