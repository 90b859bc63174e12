//! Output: a table on a terminal, tab-separated lines otherwise, or JSON.
//!
//! Start with [`Output`]. A [`Record`] is a line of it. [`messages`] has the texts for people, on
//! stderr, and [`attributes`] shows attributes as JSON. [`verbosity`] says which messages to print.

pub(crate) mod attributes;
pub(crate) mod messages;
mod record;
pub(crate) mod verbosity;

use std::env;
use std::io::{self, IsTerminal, Write, stdout};

pub(crate) use self::record::Record;

/// Prints records to stdout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Tabs,
    Table,
    ColouredTable,
}

impl Output {
    /// The format for stdout.
    pub(crate) fn of(is_json: bool) -> Self {
        let format = if is_json {
            Format::Json
        } else if !stdout().is_terminal() {
            Format::Tabs
        } else if is_plain() {
            Format::Table
        } else {
            Format::ColouredTable
        };
        Self { format }
    }

    /// Prints one record, and flushes it.
    pub(crate) fn print(self, record: &Record) -> io::Result<()> {
        let line = match self.format {
            Format::Json => record.json(),
            Format::Tabs => record.texts().join("\t"),
            Format::Table | Format::ColouredTable => record.texts().join("  "),
        };
        writeln!(stdout(), "{line}")?;
        stdout().flush()
    }

    /// Prints `text`, or `fields` if JSON is asked for.
    pub(crate) fn print_text(self, text: &str, fields: &serde_json::Value) -> io::Result<()> {
        match self.format {
            Format::Json => writeln!(stdout(), "{fields}")?,
            _ => writeln!(stdout(), "{text}")?,
        }
        stdout().flush()
    }

    /// Prints records with the same fields. A table has a heading.
    pub(crate) fn list(self, records: &[Record]) -> io::Result<()> {
        if matches!(self.format, Format::Json | Format::Tabs) {
            return records.iter().try_for_each(|record| self.print(record));
        }
        let Some(first) = records.first() else { return Ok(()) };
        let heading: Vec<String> = first.names().map(str::to_uppercase).collect();
        let rows: Vec<Vec<String>> = records.iter().map(Record::texts).collect();
        let widths: Vec<usize> = (0..heading.len())
            .map(|column| {
                let cells = rows.iter().chain([&heading]).filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
            })
            .collect();
        let mut out = stdout().lock();
        let heading = aligned(&heading, &widths);
        match self.format {
            Format::ColouredTable => writeln!(out, "\x1b[1m{heading}\x1b[0m")?,
            _ => writeln!(out, "{heading}")?,
        }
        for row in rows {
            writeln!(out, "{}", aligned(&row, &widths))?;
        }
        Ok(())
    }
}

/// Whether the user wants no colours: see <https://no-color.org>.
fn is_plain() -> bool {
    env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || env::var_os("TERM").is_some_and(|terminal| terminal == "dumb")
}

fn aligned(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}
