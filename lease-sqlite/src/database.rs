//! One connection, which runs each statement to its end.

use std::path::PathBuf;
use std::sync::Arc;

use lease_core::LeaseKey;
use rusqlite::{Connection, Row as SqlRow, ToSql, named_params};

use crate::error::Fault;
use crate::file::identity::Identity;
use crate::file::settings::Settings;
use crate::row::Row;

#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    path: PathBuf,
    pub(crate) settings: Settings,
    identity: Arc<Identity>,
}

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

    pub(crate) fn check_identity(&self) -> Result<(), Fault> {
        self.identity.check()
    }

    /// Returns the number of changed rows.
    pub(crate) fn execute(&self, sql: &str, params: Params<'_>) -> Result<usize, Fault> {
        let run = || self.connection.prepare_cached(sql)?.execute(params);
        run().map_err(|error| self.fault(&error))
    }

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

    /// Moves all rows of another boot to this boot (`first_seen.sql`).
    pub(crate) fn see_all(&self) -> Result<(), Fault> {
        let statements = &self.settings.statements;
        self.execute(&statements.first_seen, named_params! { ":key": None::<&str> }).map(drop)
    }

    pub(crate) fn see(&self, key: &LeaseKey) -> Result<(), Fault> {
        let statements = &self.settings.statements;
        self.execute(&statements.first_seen, named_params! { ":key": key.as_str() }).map(drop)
    }

    /// Without `IMMEDIATE`, a transaction that reads first and writes later fails if another process writes
    /// in between. SQLite then ignores `busy_timeout`.
    pub(crate) fn begin(&self) -> Result<(), Fault> {
        self.execute("BEGIN IMMEDIATE", &[]).map(drop)
    }

    pub(crate) fn commit(&self) -> Result<(), Fault> {
        self.execute("COMMIT", &[]).map(drop)
    }

    /// SQLite may have rolled back the transaction already.
    pub(crate) fn roll_back(&self) {
        if self.is_in_transaction() {
            // An error means that no transaction is open, or that the next `BEGIN` fails and reports it.
            drop(self.execute("ROLLBACK", &[]));
        }
    }

    /// After some errors, such as a full disk, SQLite ends a transaction by itself.
    pub(crate) fn is_in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    /// The number changes when another connection has committed.
    pub(crate) fn data_version(&self) -> Result<i64, Fault> {
        let versions = self.rows("PRAGMA data_version", &[], |row| row.get(0))?;
        Ok(versions.into_iter().next().unwrap_or_default())
    }

    fn fault(&self, error: &rusqlite::Error) -> Fault {
        Fault::from_sqlite(&self.path, error)
    }
}
