//! Runs Kinesis record processors written in any language. Start with [`running`].

mod arguments;
mod aws;
mod configuration;
mod failure;
mod logging;
mod metrics;
mod parent;
mod program;
mod running;
mod signals;
mod status_line;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tokio::runtime::Builder;

use crate::arguments::{Arguments, Invocation};
use crate::failure::{Failure, report};

fn main() -> ExitCode {
    if let Some(ended) = parent::run_as_child() {
        return ended;
    }
    let Invocation { arguments, class_path, jvm_options } = Invocation::of(std::env::args_os());
    // Exits the process with code 2 if the arguments are invalid, and with code 0 after `--help`.
    let arguments = Arguments::parse_from(arguments);
    let outcome = arguments.settings(&class_path).and_then(|settings| {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads())
            .enable_all()
            .build()
            .map_err(Failure::other)?;
        let ended = runtime.block_on(running::run(settings, &arguments, &jvm_options));
        // Drops all tasks, which kills the remaining children. A blocked DNS request delays this briefly.
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        ended
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

/// A few threads can serve many children.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(4)
}

const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);
