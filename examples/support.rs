//! What the examples share.

use std::error::Error;
use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use lease_core::{BootClock, Clock, FencingToken, LeaseTable, LockStore, Moment};
use lease_memory::MemoryStore;

pub mod counts;
pub mod deliveries;
mod dynamodb;
pub mod export_parts;
#[cfg(feature = "aws")]
pub mod kinesis;
pub mod orders;
pub mod payroll;
mod redis;
pub mod screen;

/// Why an example could not do what it was asked to.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Opens the store that `address` names: `memory`, `dynamodb://HOST:PORT/TABLE`,
/// `redis://HOST:PORT/DATABASE`, or `redis://HOST:PORT,HOST:PORT,HOST:PORT` for a quorum of
/// independent servers. Each worker opens its own, as each process would.
///
/// # Errors
///
/// Where `address` names no store that is known here, or the store cannot be used.
pub async fn open(address: &str) -> Result<Arc<dyn LockStore>, Failure> {
    match address.split_once("://") {
        None if address == "memory" => Ok(Arc::new(memory())),
        Some(("dynamodb", place)) => Ok(Arc::new(dynamodb::open(place).await?)),
        Some(("redis", places)) => redis::open(places).await,
        _ => Err(Failure::from(format!(
            "store {address:?} is not known: it is \"memory\", \"dynamodb://HOST:PORT/TABLE\", \
             \"redis://HOST:PORT\", or \"redis://HOST:PORT,HOST:PORT,HOST:PORT\""
        ))),
    }
}

/// Opens the store that `address` names, as [`open`] does, to keep records in it.
///
/// # Errors
///
/// As for [`open`]; and where `address` names a quorum, which keeps leases and nothing else.
pub async fn open_table(address: &str) -> Result<Arc<dyn LeaseTable>, Failure> {
    match address.split_once("://") {
        None if address == "memory" => Ok(Arc::new(memory())),
        Some(("dynamodb", place)) => Ok(Arc::new(dynamodb::open(place).await?)),
        Some(("redis", place)) if !place.contains(',') => {
            Ok(Arc::new(redis::connect(place).await?))
        }
        Some(("redis", _places)) => Err(Failure::from(format!(
            "store {address:?} is a quorum, which keeps no records: name one server"
        ))),
        _ => Err(Failure::from(format!(
            "store {address:?} is not known: it is \"memory\", \"dynamodb://HOST:PORT/TABLE\", \
             or \"redis://HOST:PORT\""
        ))),
    }
}

/// The one store of this process: opened twice, it has the same leases, as a server has.
fn memory() -> MemoryStore {
    static MEMORY: OnceLock<MemoryStore> = OnceLock::new();
    // Small tokens are easier to follow by eye; nothing here outlives the process.
    MEMORY.get_or_init(MemoryStore::counting_from_one).clone()
}

/// Prints what happens, when, to whom, and under which token.
#[derive(Debug)]
pub struct Timeline {
    clock: BootClock,
    start: Moment,
}

impl Timeline {
    /// A timeline that starts now.
    pub fn start() -> Self {
        let clock = BootClock::new();
        let start = clock.now();
        Self { clock, start }
    }

    /// Prints one line: `what` happened to `who`, which held the lease under `token`.
    pub fn tell(&self, who: &str, token: Option<FencingToken>, what: impl fmt::Display) {
        let elapsed = self.clock.now().since(self.start).as_secs_f64();
        let token = token.map(|token| format!("token {token}"));
        let token = token.unwrap_or_default();
        show(format_args!("{elapsed:7.3} s  {who:<9} {token:<8}  {what}"));
    }
}

/// Prints a line. Unlike `println!`, it does not panic where the reader has gone, as `head` does.
pub fn show(line: impl fmt::Display) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

/// Ends `program`: with the code that it came to, or with its failure as one sentence and 2.
#[expect(clippy::print_stderr, reason = "this is how a program says what is wrong")]
pub fn end(program: &str, outcome: Result<ExitCode, Failure>) -> ExitCode {
    outcome.unwrap_or_else(|failure| {
        eprintln!("{program}: {}", sentence(&*failure));
        ExitCode::from(2)
    })
}

/// An error and its sources, outermost first: each prints its own level only.
pub fn sentence(error: &(dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |&error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// The code in the top README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
