//! Code that several examples share. Start at [`stores`], which makes each store.

use std::error::Error;
use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use lease_core::FencingToken;
use lease_core::store::{BootClock, Clock, Moment};

#[cfg(feature = "exporter")]
pub mod counts;
#[cfg(feature = "kinesis")]
pub mod deliveries;
#[cfg(feature = "exporter")]
pub mod export_parts;
#[cfg(feature = "aws")]
pub mod kinesis;
#[cfg(feature = "exporter")]
pub mod orders;
pub mod payroll;
pub mod screen;
pub mod stores;

/// The error of an example.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Prints events with their time, process and fencing token.
#[derive(Debug)]
pub struct Timeline {
    clock: BootClock,
    start: Moment,
}

impl Timeline {
    /// Creates a timeline that starts now.
    pub fn start() -> Self {
        let clock = BootClock::new();
        let start = clock.now();
        Self { clock, start }
    }

    /// Prints one line: process `name`, the `token` of its lease, and `event`.
    pub fn print(&self, name: &str, token: Option<FencingToken>, event: impl fmt::Display) {
        let elapsed = self.clock.now().since(self.start).as_secs_f64();
        let token = token.map(|token| format!("token {token}"));
        let token = token.unwrap_or_default();
        print_line(format_args!("{elapsed:7.3} s  {name:<9} {token:<8}  {event}"));
    }
}

/// Prints a line. `println!` would panic if the reader has closed the pipe, as `head` does.
pub fn print_line(line: impl fmt::Display) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

/// Returns the exit code of `program`. Prints a failure as one sentence and returns 2.
#[expect(clippy::print_stderr, reason = "a program prints its error to stderr")]
pub fn exit(program: &str, outcome: Result<ExitCode, Failure>) -> ExitCode {
    outcome.unwrap_or_else(|failure| {
        eprintln!("{program}: {}", sentence(&*failure));
        ExitCode::from(2)
    })
}

/// Joins the texts of an error and of its sources, outermost first.
pub fn sentence(error: &(dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |&error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// Compiles and runs the code in the top README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
