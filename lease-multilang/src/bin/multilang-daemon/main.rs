#![doc = include_str!("../README.md")]

mod arguments;
mod clients;
mod credentials;
mod failure;
mod keys;
mod logging;
mod parent;
mod program;
mod progress;
mod properties;
mod region;
mod running;
mod settings;
mod signals;
mod start;
mod stream;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tokio::runtime::Builder;

use crate::arguments::{Arguments, Invocation};
use crate::failure::{Failure, told};

fn main() -> ExitCode {
    if let Some(ended) = parent::run_as_child() {
        return ended;
    }
    let Invocation { arguments, class_path, of_java } = Invocation::of(std::env::args_os());
    // It ends the program where it cannot be understood, with 2; and after `--help`, with 0.
    let arguments = Arguments::parse_from(arguments);
    let outcome = arguments.settings(&class_path).and_then(|settings| {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads())
            .enable_all()
            .build()
            .map_err(Failure::other)?;
        let ended = runtime.block_on(running::run(settings, &arguments, &of_java));
        // Children that are left are killed; a name that is still being looked up is waited for no
        // longer.
        runtime.shutdown_timeout(LAST_MOMENT);
        ended
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => told(&failure),
    }
}

/// The work is the children's: few threads talk with many of them.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(4)
}

/// For what runs beside to be taken down.
const LAST_MOMENT: Duration = Duration::from_millis(500);
