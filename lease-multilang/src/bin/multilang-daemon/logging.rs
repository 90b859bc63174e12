//! The log: on stderr, around the status line if there is one.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::progress::StatusLine;

/// Begins to log: what `RUST_LOG` says, by default all that an operator wants to know.
pub(crate) fn begin(status: &StatusLine) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_none| EnvFilter::new(DEFAULT));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(status.is_shown())
        .with_target(false)
        .with_writer(Log(status.clone()));
    // There is one already in no case that is known: the program begins here.
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

/// Of its search for a region and for credentials, the SDK tells each place that has none, at length:
/// what is missing in the end is told by this program.
const DEFAULT: &str = "info,aws_config=error";
