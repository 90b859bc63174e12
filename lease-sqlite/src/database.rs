//! One connection: runs each statement to its end.

use std::path::PathBuf;
use std::sync::Arc;

use lease_core::LeaseKey;
use rusqlite::{Connection, Row as SqlRow, ToSql, named_params};

use crate::error::Fault;
use crate::file::identity::Identity;
use crate::file::settings::Settings;
use crate::row::Row;

/// A connection to the file of a store.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    path: PathBuf,
    pub(crate) settings: Settings,
    identity: Arc<Identity>,
}

/// Named parameters of a statement.
pub(crate) type Params<'a> = &'a [(&'a str, &'a dyn ToSql)];

impl Database {
    pub(crate) fn new(
        connection: Connection,
        path: PathBuf,
        settings: Settings,
        identity: Arc<Identity>,
    ) -> Self {
        Self { connection, path, settings, identity }
    }

    /// Refuses to continue if the file was removed or replaced.
    pub(crate) fn check_identity(&self) -> Result<(), Fault> {
        self.identity.check()
    }

    /// Runs `sql`. Returns how many rows it changed.
    pub(crate) fn execute(&self, sql: &str, params: Params<'_>) -> Result<usize, Fault> {
        let run = || self.connection.prepare_cached(sql)?.execute(params);
        run().map_err(|error| self.fault(&error))
    }

    /// Runs `sql` to its end. Returns its rows.
    ///
    /// `query_row` stops at the first row and would miss later errors. A statement outside of a transaction
    /// commits at its end, and a full disk is an error of that commit.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        params: Params<'_>,
        read: impl Fn(&SqlRow<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<Vec<T>, Fault> {
        let run = || {
            let mut statement = self.connection.prepare_cached(sql)?;
            statement.query_map(params, read)?.collect::<Result<Vec<_>, _>>()
        };
        run().map_err(|error| self.fault(&error))
    }

    pub(crate) fn row(&self, key: &LeaseKey) -> Result<Option<Row>, Fault> {
        let params = named_params! { ":key": key.as_str() };
        let rows = self.rows(&self.settings.statements.read, params, Row::read)?;
        rows.into_iter().next().transpose()
    }

    /// Moves all rows of another boot to this boot: see `first_seen.sql`.
    pub(crate) fn see_all(&self) -> Result<(), Fault> {
        let statements = &self.settings.statements;
        self.execute(&statements.first_seen, named_params! { ":key": None::<&str> }).map(drop)
    }

    /// Moves the row of `key` to this boot, if it is of another boot.
    pub(crate) fn see(&self, key: &LeaseKey) -> Result<(), Fault> {
        let statements = &self.settings.statements;
        self.execute(&statements.first_seen, named_params! { ":key": key.as_str() }).map(drop)
    }

    /// Locks the file for writes. For other processes, all statements until [`commit`](Self::commit) are
    /// one step.
    ///
    /// Without `IMMEDIATE`, a transaction that reads first and writes later fails if another process writes
    /// in between. SQLite then ignores `busy_timeout`.
    pub(crate) fn begin(&self) -> Result<(), Fault> {
        self.execute("BEGIN IMMEDIATE", &[]).map(drop)
    }

    pub(crate) fn commit(&self) -> Result<(), Fault> {
        self.execute("COMMIT", &[]).map(drop)
    }

    /// Rolls a failed transaction back, unless SQLite has already done so.
    pub(crate) fn roll_back(&self) {
        if self.is_in_transaction() {
            // An error means that there is no transaction, or that the next `BEGIN` fails and reports it.
            drop(self.execute("ROLLBACK", &[]));
        }
    }

    /// Whether a transaction is open. After some errors, such as a full disk, SQLite ends it by itself.
    pub(crate) fn is_in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    /// Returns a number that changes when another connection has committed.
    pub(crate) fn data_version(&self) -> Result<i64, Fault> {
        let versions = self.rows("PRAGMA data_version", &[], |row| row.get(0))?;
        Ok(versions.into_iter().next().unwrap_or_default())
    }

    fn fault(&self, error: &rusqlite::Error) -> Fault {
        Fault::from_sqlite(&self.path, error)
    }
}
