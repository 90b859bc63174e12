//! The SQL functions that the statements call.
//!
//! A statement may wait seconds for the write lock, and must read the time *after* the wait. So the functions
//! are not deterministic. SQLite may call a deterministic function before it locks the file.

use std::sync::Arc;

use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, Error};

use crate::attributes;
use crate::machine::Machine;

pub(crate) fn register(connection: &Connection, machine: &Arc<dyn Machine>) -> Result<(), Error> {
    let flags = FunctionFlags::SQLITE_UTF8;
    let this = Arc::clone(machine);
    connection.create_scalar_function("boot_time", 0, flags, move |_| {
        Ok(micros(this.boot_time().as_micros()))
    })?;
    let this = Arc::clone(machine);
    connection.create_scalar_function("boot_id", 0, flags, move |_| Ok(this.boot_id()))?;
    let this = Arc::clone(machine);
    connection.create_scalar_function("wall_time", 0, flags, move |_| {
        Ok(micros(u128::from(this.wall_time())))
    })?;
    connection.create_scalar_function("meets", 2, flags, |context| {
        let (found, expected) = (context.get::<String>(0)?, context.get::<String>(1)?);
        attributes::meets(&found, &expected)
            .ok_or_else(|| Error::UserFunctionError("attributes are no JSON object".into()))
    })
}

fn micros(micros: u128) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}
