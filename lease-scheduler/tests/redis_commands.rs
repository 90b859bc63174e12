//! Commands of operators on a real Redis, in real time: each process has a connection of its own. `jobs` tests the
//! behaviour that does not depend on the store.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a failed assumption fails the test, and figures are printed"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lease_core::store::{BootClock, Clock, Moment};
use lease_core::{LeaseOptions, Locker};
use lease_redis::RedisStore;
use lease_scheduler::{
    Concurrency, Ending, Job, JobControl, JobError, MarkReset, Misfire, PastRun, RunQuery,
    Schedule, Scheduler, SchedulerBuilder, SchedulerHandle, SkewedWallClock, Trigger,
    TriggerAnswer, TriggerNumber, TriggerState, Triggered,
};
use lease_test_servers::redis::{RedisServer, available};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// A scheduler with its own connection, as in a separate process.
struct Machine {
    handle: SchedulerHandle,
    task: JoinHandle<()>,
}

impl Machine {
    async fn stop(self) {
        self.handle.stop();
        self.task.await.unwrap();
    }
}

async fn connect(server: &RedisServer, name: &str) -> (Locker, RedisStore) {
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let options = LeaseOptions::new(Duration::from_secs(15)).unwrap();
    let options = options.with_poll_interval(Duration::from_millis(50)).unwrap();
    let locker = Locker::new(store.clone()).with_lessee(name.parse().unwrap());
    (locker.with_options(options), store)
}

async fn start(server: &RedisServer, name: &str, ahead: SignedDuration, jobs: Vec<Job>) -> Machine {
    let (locker, store) = connect(server, name).await;
    let wall = SkewedWallClock::new(Timestamp::now() + ahead, 1.0);
    let builder = Scheduler::builder(locker, store).with_wall_clock(Arc::new(wall));
    let scheduler = jobs.into_iter().fold(builder, SchedulerBuilder::with_job).build().unwrap();
    Machine { handle: scheduler.handle(), task: tokio::spawn(scheduler.run()) }
}

async fn operator(server: &RedisServer) -> JobControl {
    let (locker, store) = connect(server, "operator").await;
    JobControl::new(&locker, store)
}

/// The starts of bodies: when, and their argument `day`.
type Starts = Arc<Mutex<Vec<(Moment, String)>>>;

/// A job that logs its starts, and ends when it gets a permit.
fn job(name: &str, starts: &Starts, finish: &Arc<Semaphore>) -> Job {
    let (starts, finish) = (Arc::clone(starts), Arc::clone(finish));
    Job::new(name.parse().unwrap(), move |job| {
        let finish = Arc::clone(&finish);
        let day = job.arguments().get("day").and_then(|day| day.as_text()).unwrap_or_default();
        starts.lock().unwrap().push((BootClock::new().now(), day.to_owned()));
        async move {
            finish.acquire().await.unwrap().forget();
            Ok(())
        }
    })
}

fn unlimited() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(Semaphore::MAX_PERMITS / 2))
}

async fn trigger(control: &JobControl, day: &str) -> TriggerNumber {
    let trigger = Trigger::new().with_argument("day", day);
    match control.trigger("job", &trigger).await.unwrap() {
        Triggered::Accepted(number) => number,
        other => panic!("{other:?}"),
    }
}

async fn answer(control: &JobControl, number: TriggerNumber) -> TriggerAnswer {
    let answered = control.wait_for_answer("job", number);
    match timeout(Duration::from_secs(60), answered).await.unwrap().unwrap() {
        TriggerState::Answered(answer) => answer,
        other => panic!("{other:?}"),
    }
}

async fn runs(control: &JobControl) -> Vec<PastRun> {
    control.history("job", &RunQuery::new()).await.unwrap_or_default()
}

/// Waits until `condition` holds for the history of the job.
async fn until(
    control: &JobControl,
    condition: impl Fn(&[PastRun]) -> bool + Send + Sync,
) -> Vec<PastRun> {
    let waiting = async {
        loop {
            let runs = runs(control).await;
            if condition(&runs) {
                return runs;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(300), waiting).await.unwrap()
}

async fn until_listed(control: &JobControl) {
    let listed = async {
        while control.job("job").await.unwrap().is_none() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), listed).await.unwrap();
}

/// A busy machine may stop for a second, so the shortest of several times counts.
#[tokio::test]
async fn trigger_from_other_process_starts_one_run_within_a_second() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let (starts, finish) = (Starts::default(), unlimited());
    let mut machines = Vec::new();
    for name in ["a", "b"] {
        let jobs = vec![job("job", &starts, &finish)];
        machines.push(start(&server, name, SignedDuration::ZERO, jobs).await);
    }
    let control = operator(&server).await;
    until_listed(&control).await;
    let mut shortest = Duration::MAX;

    for round in 1..=20 {
        let sent = BootClock::new().now();
        let number = trigger(&control, &format!("day {round}")).await;
        assert_eq!(answer(&control, number).await, TriggerAnswer::Started);
        let ended = |runs: &[PastRun]| {
            runs[0].trigger == Some(number) && runs[0].ending == Ending::Finished
        };
        until(&control, ended).await;
        let starts = starts.lock().unwrap();
        assert_eq!(starts.len(), round, "one run for each trigger");
        assert_eq!(starts[round - 1].1, format!("day {round}"));
        shortest = shortest.min(starts[round - 1].0.since(sent));
        if shortest < Duration::from_secs(1) && round >= 3 {
            break;
        }
    }

    println!("a body starts {shortest:?} after its trigger");
    assert!(shortest < Duration::from_secs(1), "{shortest:?}");
    for machine in machines {
        machine.stop().await;
    }
}

#[tokio::test]
async fn trigger_during_a_run_is_refused_or_waits() {
    if !available() {
        return;
    }
    for concurrency in [Concurrency::Forbid, Concurrency::QueueOne] {
        let server = RedisServer::start();
        let (starts, finish) = (Starts::default(), Arc::new(Semaphore::new(0)));
        let mut machines = Vec::new();
        for name in ["a", "b"] {
            let jobs = vec![job("job", &starts, &finish).concurrency(concurrency)];
            machines.push(start(&server, name, SignedDuration::ZERO, jobs).await);
        }
        let control = operator(&server).await;
        until_listed(&control).await;
        let first = trigger(&control, "1").await;
        assert_eq!(answer(&control, first).await, TriggerAnswer::Started);

        let second = trigger(&control, "2").await;

        if concurrency == Concurrency::Forbid {
            assert_eq!(answer(&control, second).await, TriggerAnswer::JobRuns);
            assert_eq!(starts.lock().unwrap().len(), 1);
        } else {
            let third = control.trigger("job", &Trigger::new()).await.unwrap();
            assert_eq!(third, Triggered::OtherWaits(second));
            assert_eq!(starts.lock().unwrap().len(), 1);
            finish.add_permits(1);
            assert_eq!(answer(&control, second).await, TriggerAnswer::Started);
        }
        finish.add_permits(10);
        for machine in machines {
            machine.stop().await;
        }
    }
}

#[tokio::test]
async fn pause_and_resume_survive_a_restart() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let (starts, finish) = (Starts::default(), unlimited());
    let jobs = |probe: &Starts| {
        let each_second = || Schedule::every(Duration::from_secs(1)).unwrap();
        let paused = job("job", &starts, &finish).on(each_second());
        vec![paused, job("probe", probe, &finish).on(each_second())]
    };
    let (probe, control) = (Starts::default(), operator(&server).await);
    let a = start(&server, "a", SignedDuration::ZERO, jobs(&probe)).await;
    until(&control, |runs| !runs.is_empty()).await;

    control.pause("job", "moving").await.unwrap();
    a.stop().await;
    let (before, after_restart) = (starts.lock().unwrap().len(), Starts::default());
    let b = start(&server, "b", SignedDuration::ZERO, jobs(&after_restart)).await;
    let ticked = async {
        while after_restart.lock().unwrap().len() < 3 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(300), ticked).await.unwrap();
    assert_eq!(starts.lock().unwrap().len(), before, "the other job has run three ticks");
    assert_eq!(control.job("job").await.unwrap().unwrap().paused.unwrap().why, "moving");

    control.resume("job").await.unwrap();
    until(&control, |runs| runs[0].by == "b" && runs[0].ending == Ending::Finished).await;
    b.stop().await;
}

#[tokio::test]
async fn hung_or_failed_trigger_is_tried_again_up_to_the_limit() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let job = Job::new("job".parse().unwrap(), |job| async move {
        if job.attempt() == 1 {
            std::future::pending::<()>().await;
        }
        Err(JobError::from("no such table"))
    });
    let job = job.timeout(Duration::from_millis(300)).unwrap().attempts(3);
    let job = job.backoff(Duration::from_millis(100), Duration::from_millis(200)).unwrap();
    let machine = start(&server, "a", SignedDuration::ZERO, vec![job]).await;
    let control = operator(&server).await;
    until_listed(&control).await;

    let number = trigger(&control, "1").await;
    let runs = until(&control, |runs| {
        runs.len() == 3 && runs.iter().all(|run| run.ending != Ending::Running)
    })
    .await;

    let seen: Vec<_> = runs.iter().rev().map(|run| (run.attempt, run.ending)).collect();
    assert_eq!(seen, [(1, Ending::TimedOut), (2, Ending::Failed), (3, Ending::Failed)]);
    assert!(runs.iter().all(|run| run.trigger == Some(number)));
    machine.stop().await;
}

#[tokio::test]
async fn job_is_added_and_removed_at_run_time_and_its_history_is_queried() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let (starts, finish) = (Starts::default(), unlimited());
    let machine = start(&server, "a", SignedDuration::ZERO, Vec::new()).await;
    let control = operator(&server).await;
    assert!(control.list("").await.unwrap().is_empty());

    let each_second = Schedule::every(Duration::from_secs(1)).unwrap();
    let added = job("job", &starts, &finish).on(each_second).history_length(3).unwrap();
    machine.handle.add_job(added).unwrap();
    let enough = || starts.lock().unwrap().len() >= 5;
    let runs = until(&control, |runs| runs.len() >= 3 && enough()).await;
    assert!(runs.len() <= 4, "three runs and the current one: {runs:?}");
    let status = control.job("job").await.unwrap().unwrap();
    assert_eq!(status.next_ticks(2).len(), 2);
    assert!(machine.handle.remove_job("job").await);

    let count = starts.lock().unwrap().len();
    let runs = control.history("job", &RunQuery::new()).await.unwrap();
    let query = RunQuery::new().from(runs[1].began).ending(Ending::Finished);
    let later = control.history("job", &query).await.unwrap();
    assert!(later.iter().all(|run| run.began >= runs[1].began), "{later:?}");
    assert!(!later.is_empty() && later.len() <= 2, "{later:?}");
    assert_eq!(starts.lock().unwrap().len(), count);
    machine.stop().await;
}

#[tokio::test]
async fn mark_ahead_is_listed_and_reset_by_other_process() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let (starts, finish) = (Starts::default(), unlimited());
    let jobs = || {
        let each_second = Schedule::every(Duration::from_secs(1)).unwrap();
        vec![job("job", &starts, &finish).on(each_second)]
    };
    let control = operator(&server).await;
    let ahead = start(&server, "ahead", SignedDuration::from_hours(1), jobs()).await;
    until(&control, |runs| !runs.is_empty()).await;
    ahead.stop().await;
    assert!(control.job("job").await.unwrap().unwrap().mark_ahead.is_some());
    let right = start(&server, "right", SignedDuration::ZERO, jobs()).await;

    let reset = async {
        loop {
            match control.reset_mark("job").await.unwrap() {
                MarkReset::Reset(mark) => return mark,
                MarkReset::Held(_) => sleep(Duration::from_millis(20)).await,
                other => panic!("{other:?}"),
            }
        }
    };
    let mark = timeout(Duration::from_secs(60), reset).await.unwrap();

    assert!(mark > Timestamp::now());
    until(&control, |runs| runs[0].by == "right").await;
    right.stop().await;
}

#[tokio::test]
async fn missed_ticks_are_reported_or_caught_up() {
    if !available() {
        return;
    }
    for misfire in [Misfire::StartWithin(Duration::from_secs(1)), Misfire::CatchUpOnce] {
        let server = RedisServer::start();
        let (starts, finish) = (Starts::default(), unlimited());
        let schedule = Schedule::every(Duration::from_secs(3)).unwrap();
        let jobs = || {
            let job = job("job", &starts, &finish).on(schedule.clone());
            vec![job.misfire(misfire).unwrap()]
        };
        let control = operator(&server).await;
        let a = start(&server, "a", SignedDuration::ZERO, jobs()).await;
        until(&control, |runs| !runs.is_empty()).await;
        a.stop().await;
        let stopped = Timestamp::now();
        sleep(Duration::from_secs(8)).await; // at least two ticks pass

        let b = start(&server, "b", SignedDuration::ZERO, jobs()).await;
        let runs = until(&control, |runs| runs.iter().any(|run| run.by == "b")).await;

        let missed = |run: &&PastRun| run.ending == Ending::Missed && run.scheduled > stopped;
        let first = runs.iter().rev().find(|run| run.by == "b").unwrap();
        if misfire == Misfire::CatchUpOnce {
            let caught = until(&control, |runs| {
                runs.iter().any(|run| run.by == "b" && run.ending != Ending::Missed)
            })
            .await;
            let run = caught.iter().rev().find(|run| run.by == "b" && run.attempt > 0).unwrap();
            assert!(run.scheduled > stopped, "{caught:?}");
        } else {
            assert!(missed(&first), "{runs:?}");
        }
        b.stop().await;
    }
}
