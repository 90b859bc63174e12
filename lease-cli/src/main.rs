//! Runs commands under distributed leases, and shows and ends leases, for cron, scripts and operators.
//!
//! Start reading at [`commands`], which has one file per command. [`child`] starts and stops the command of
//! `lease run`, [`arguments`] parses the command line, and [`store`] opens the store.

#[cfg(target_os = "linux")]
mod arguments;
#[cfg(all(target_os = "linux", any(feature = "dynamodb", feature = "kinesis")))]
mod aws;
#[cfg(target_os = "linux")]
mod child;
#[cfg(target_os = "linux")]
mod commands;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(target_os = "linux")]
mod exit;
#[cfg(target_os = "linux")]
mod jobs;
#[cfg(target_os = "linux")]
mod output;
#[cfg(all(target_os = "linux", feature = "serve"))]
mod serve;
#[cfg(target_os = "linux")]
mod signals;
#[cfg(target_os = "linux")]
mod started;
#[cfg(target_os = "linux")]
mod store;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    // Before anything else, since the start of a command must be fast.
    if let Some(code) = child::run_as_helper() {
        return code;
    }
    let arguments = match arguments::parse() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    match std::panic::catch_unwind(|| commands::dispatch(arguments)) {
        Ok(Ok(exit)) => exit.into(),
        Ok(Err(failure)) => failure.report(),
        // The panic has printed its message. The keeper kills the command.
        Err(_panic) => exit::Exit::OWN_FAULT.into(),
    }
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::print_stderr, reason = "a program reports its failure on stderr")]
fn main() -> ExitCode {
    eprintln!("lease: this program needs Linux, where a child dies with its parent");
    ExitCode::from(78)
}
