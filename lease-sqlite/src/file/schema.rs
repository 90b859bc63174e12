//! Creates the tables in a new file, or checks that the file belongs to this crate. Upgrades a file of an
//! earlier version.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use lease_core::StoreErrorKind;
use rusqlite::{Connection, Error, TransactionBehavior};

use crate::error::{Fault, is_busy};
use crate::file::settings::Settings;
use crate::statements::{CREATE_TABLES, UPGRADE};

/// The number is `Leas` in ASCII.
const APPLICATION: i64 = 0x4c65_6173;
const VERSION: i64 = 2;
/// The first version. A file of this version is upgraded.
const FIRST_VERSION: i64 = 1;
const RETRY: Duration = Duration::from_millis(5);

/// Does not write to a file of another program.
pub(crate) fn prepare(
    connection: &Connection,
    path: &Path,
    settings: &Settings,
) -> Result<(), Fault> {
    let start = settings.machine.boot_time();
    loop {
        match prepare_once(connection, path) {
            // SQLite does not wait for a lock when it enters WAL mode. So concurrent creators may find the
            // file busy.
            Err(fault) if fault.kind == StoreErrorKind::Unavailable => {
                let passed = settings.machine.boot_time().saturating_sub(start);
                if passed > settings.timeout {
                    return Err(fault);
                }
                sleep(RETRY);
            }
            prepared => return prepared,
        }
    }
}

fn prepare_once(connection: &Connection, path: &Path) -> Result<(), Fault> {
    let fault = |error: Error| Fault::from_sqlite(path, &error);
    if owner_at_one_moment(connection).map_err(fault)?.content(path)? == Content::Current {
        return enter_wal(connection, path);
    }
    enter_wal(connection, path)?;
    let transaction =
        rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
            .map_err(fault)?;
    match owner(&transaction).map_err(fault)?.content(path)? {
        Content::Current => return Ok(()),
        Content::Nothing => {
            transaction.execute_batch(CREATE_TABLES).map_err(fault)?;
            transaction.pragma_update(None, "application_id", APPLICATION).map_err(fault)?;
        }
        Content::Earlier => transaction.execute_batch(UPGRADE).map_err(fault)?,
    }
    transaction.pragma_update(None, "user_version", VERSION).map_err(fault)?;
    transaction.commit().map_err(fault)
}

fn enter_wal(connection: &Connection, path: &Path) -> Result<(), Fault> {
    let entered = connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0));
    let mode = match entered {
        Err(error) if is_busy(&error) => {
            return Err(Fault::unavailable(format!(
                "{}: another program holds the file: close it",
                path.display()
            )));
        }
        entered => entered.map_err(|error| Fault::from_sqlite(path, &error))?,
    };
    if mode != "wal" {
        return Err(Fault::misconfigured(format!(
            "{}: the file system allows no write-ahead log: move the file to a local disk",
            path.display()
        )));
    }
    // A commit waits for the disk. `NORMAL` could lose attributes that were reported as written.
    connection
        .pragma_update(None, "synchronous", "full")
        .map_err(|error| Fault::from_sqlite(path, &error))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// The file is empty.
    Nothing,
    /// The tables of an earlier version of this crate.
    Earlier,
    Current,
}

struct Owner {
    application: i64,
    version: i64,
    tables: i64,
}

/// Reads in one transaction. Otherwise a process that creates the tables meanwhile would look like another program.
fn owner_at_one_moment(connection: &Connection) -> Result<Owner, Error> {
    owner(&*connection.unchecked_transaction()?)
}

fn owner(connection: &Connection) -> Result<Owner, Error> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get(0));
    Ok(Owner {
        application: number("PRAGMA application_id")?,
        version: number("PRAGMA user_version")?,
        tables: number("SELECT count(*) FROM sqlite_schema")?,
    })
}

impl Owner {
    /// Returns an error if the file belongs to another program, or to a later version.
    fn content(&self, path: &Path) -> Result<Content, Fault> {
        let shown = path.display();
        if self.application == 0 && self.version == 0 && self.tables == 0 {
            return Ok(Content::Nothing);
        }
        if self.application != APPLICATION {
            return Err(Fault::misconfigured(format!(
                "{shown} is the database of another program: name a file of its own for the leases"
            )));
        }
        if self.version > VERSION {
            return Err(Fault::misconfigured(format!(
                "{shown} has tables of version {}, but this program knows versions up to {VERSION}: update \
                 lease-sqlite in this program",
                self.version
            )));
        }
        if self.version < FIRST_VERSION || self.tables == 0 {
            return Err(Fault::corrupt(format!(
                "{shown} has the mark of lease-sqlite, but not its tables: stop all processes that use it, then \
                 restore it from a backup or remove it"
            )));
        }
        Ok(if self.version < VERSION { Content::Earlier } else { Content::Current })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn connect(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::from_secs(60)).unwrap();
        connection
    }

    #[test]
    fn file_that_another_process_creates_is_not_of_another_program() {
        for _round in 0..50 {
            let folder = tempfile::tempdir().unwrap();
            let path = &folder.path().join("leases.db");
            let (creator, other) = (connect(path), connect(path));
            thread::scope(|scope| {
                scope.spawn(move || while prepare_once(&creator, path).is_err() {});

                // SQLite may report that the file is busy.
                let content =
                    || owner_at_one_moment(&other).map(|owner| owner.content(path).unwrap());
                while !matches!(content(), Ok(Content::Current)) {}
            });
        }
    }
}
