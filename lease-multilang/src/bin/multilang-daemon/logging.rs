//! Writes the log to stderr, above the status line.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::status_line::StatusLine;

/// `RUST_LOG` filters the log.
pub(crate) fn start(status: &StatusLine) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_none| EnvFilter::new(DEFAULT));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(status.is_shown())
        .with_target(false)
        .with_writer(Log(status.clone()));
    // Cannot fail, because the program sets no other subscriber.
    drop(subscriber.try_init());
}

#[derive(Clone)]
struct Log(StatusLine);

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.above(|| io::stderr().write_all(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The SDK's search logs a long message for each source without a region or credentials. This program itself
/// reports missing settings.
const DEFAULT: &str = "info,aws_config=error";
