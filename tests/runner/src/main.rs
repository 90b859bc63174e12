//! Builds the test programs of the workspace and runs them side by side. `./test` calls this program.
//!
//! Most test programs wait for servers or timers. So this runner runs several waiting programs at a
//! time, and one computing program per two processors with a lower priority. When the last waiting
//! program has started, twice as many computing programs run.
#![expect(clippy::print_stdout, reason = "the program prints its report")]

mod build;
mod lanes;
mod outcome;
mod programs;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::lanes::{Lanes, run};
use crate::outcome::Totals;
use crate::programs::{Tier, jobs};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<ExitCode, Failure> {
    let tier = match std::env::args().nth(1).as_deref() {
        Some("quick") => Tier::Quick,
        Some("all") => Tier::All,
        _ => return Err("lease-test-runner takes one argument: quick or all".into()),
    };
    let programs = build::build(tier)?;
    let jobs = jobs(tier, programs);
    let lanes = Lanes::of_this_machine();
    println!("\n{} programs, {lanes}", jobs.len());

    let ended = Mutex::new(Vec::new());
    let took = run(jobs, lanes, |job, outcome| {
        println!("{}", outcome.line(job));
        if !outcome.passed {
            println!("{}", outcome.output);
        }
        ended.lock().unwrap_or_else(PoisonError::into_inner).push((job.title.clone(), outcome));
    })?;
    let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    let totals = Totals::of(&ended);
    println!("{}", totals.report(took));
    Ok(if totals.all_passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
