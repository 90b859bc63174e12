//! Runs jobs side by side.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::outcome::Outcome;
use crate::programs::Job;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Lanes {
    computing: usize,
    waiting: usize,
}

impl Lanes {
    /// A computing job uses several threads. A waiting job is idle for most of its time.
    pub(crate) fn of_this_machine() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self { computing: processors.div_ceil(2), waiting: 2 * processors }
    }
}

impl fmt::Display for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { computing, waiting } = self;
        write!(f, "at a time: {computing} computing, {waiting} waiting")
    }
}

/// Returns the time from the first start to the last end.
pub(crate) fn run(
    jobs: Vec<Job>,
    lanes: Lanes,
    ended: impl Fn(&Job, Outcome) + Sync,
) -> Result<Duration, Failure> {
    let began = now();
    let (computing, waiting): (VecDeque<_>, VecDeque<_>) =
        jobs.into_iter().partition(|job| job.computes);
    let (computing, waiting) = (Mutex::new(computing), Mutex::new(waiting));
    let lane = |queue: &Mutex<VecDeque<Job>>| -> Result<(), Failure> {
        while let Some(job) = take(queue) {
            let began = now();
            let outcome = Outcome::of(&job, || now().duration_since(began))?;
            ended(&job, outcome);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let computing_lane = || lane(&computing);
        let waiting_lane = || lane(&waiting);
        let mixed_lane = || lane(&waiting).and_then(|()| lane(&computing));
        let lanes: Vec<_> = (0..lanes.computing)
            .flat_map(|_| [scope.spawn(computing_lane), scope.spawn(mixed_lane)])
            .chain((lanes.computing..lanes.waiting).map(|_| scope.spawn(waiting_lane)))
            .collect();
        for lane in lanes {
            lane.join().map_err(|_panic| "a lane panicked")??;
        }
        Ok::<_, Failure>(())
    })?;
    Ok(now().duration_since(began))
}

fn take(queue: &Mutex<VecDeque<Job>>) -> Option<Job> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

#[expect(clippy::disallowed_methods, reason = "measures programs, no lease depends on it")]
fn now() -> Instant {
    Instant::now()
}
