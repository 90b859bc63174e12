//! Opens the connections of a store to its file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};

use crate::database::Database;
use crate::error::Fault;
use crate::file::identity::Identity;
use crate::file::network::refuse_network;
use crate::file::schema;
use crate::file::settings::Settings;
use crate::functions;

#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) writer: Database,
    pub(crate) reader: Database,
}

pub(crate) fn open(path: &Path, settings: &Settings) -> Result<Opened, Fault> {
    let path = absolute(path)?;
    refuse_network(&path)?;
    if path.is_dir() {
        return Err(Fault::misconfigured(format!(
            "{} is a folder: name a file in it",
            path.display()
        )));
    }
    Identity::refuse_former(&path, settings)?;
    let writer = connect(&path, settings)?;
    schema::prepare(&writer, &path, settings)?;
    let identity = Arc::new(Identity::of(&path, settings)?);
    let reader = connect(&path, settings)?;
    reader
        .pragma_update(None, "query_only", true)
        .map_err(|error| Fault::from_sqlite(&path, &error))?;
    let database = |connection| {
        Database::new(connection, path.clone(), settings.clone(), Arc::clone(&identity))
    };
    let (writer, reader) = (database(writer), database(reader));
    identity.check()?;
    writer.see_all()?;
    Ok(Opened { writer, reader })
}

/// SQLite derives the names of its other files from the path, so two names of one file must have one path.
fn absolute(path: &Path) -> Result<PathBuf, Fault> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    let Some(name) = path.file_name() else {
        return Err(Fault::misconfigured(format!("{} names no file", path.display())));
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    let folder = folder.canonicalize().map_err(|error| Fault::from_io(folder, &error))?;
    Ok(folder.join(name))
}

fn connect(path: &Path, settings: &Settings) -> Result<Connection, Fault> {
    let fault = |error| Fault::from_sqlite(path, &error);
    // Without `SQLITE_OPEN_URI`, SQLite never parses the path. One thread uses the connection.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(fault)?;
    connection.busy_timeout(settings.timeout).map_err(fault)?;
    functions::register(&connection, &settings.machine).map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(32);
    // If the process may not write to the file, SQLite silently opens it read-only.
    if connection.is_readonly("main").map_err(fault)? {
        return Err(Fault::denied(format!(
            "{} is read-only for this process: let this user write to the file and to its folder",
            path.display()
        )));
    }
    Ok(connection)
}
