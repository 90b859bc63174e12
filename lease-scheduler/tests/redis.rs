//! Schedulers on a real Redis, in real time. `jobs` tests the behaviour that does not depend on the
//! store.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed assumption fails the test, and figures are printed"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lease_core::store::LockStore;
use lease_core::{LeaseOptions, Locker};
use lease_redis::RedisStore;
use lease_scheduler::{
    DisabledBy, Ending, Job, JobMetrics, Outcome, Run, Schedule, Scheduler, SchedulerHandle,
    SkewedWallClock, Skip, Switch, TableSwitch,
};
use lease_test_servers::redis::{RedisServer, available};
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

struct Machine {
    reports: Arc<Reports>,
    handle: SchedulerHandle,
    store: RedisStore,
    task: JoinHandle<()>,
}

/// The first and the last tick of each reported outcome: missed ticks, a death or a lost lease.
#[derive(Debug, Default)]
struct Reports(Mutex<Vec<(Timestamp, Timestamp)>>);

impl JobMetrics for Reports {
    fn ended(&self, run: &Run) {
        let ticks = match &run.outcome {
            Outcome::Missed(ticks) => (ticks.first, ticks.last),
            // Records the tick even if its body has not started.
            Outcome::Died(_) | Outcome::Lost(_) => (run.scheduled, run.scheduled),
            _ => return,
        };
        self.0.lock().unwrap().push(ticks);
    }
}

impl Reports {
    /// The ticks of `schedule` that were missed, or whose run died or lost its lease.
    fn ticks(&self, schedule: &Schedule) -> BTreeSet<Timestamp> {
        let mut ticks = BTreeSet::new();
        for (first, last) in self.0.lock().unwrap().iter() {
            ticks.extend(ticks_between(schedule, *first, *last));
            ticks.insert(*last);
        }
        ticks
    }
}

/// The machine's clock is ahead by `ahead`. `job` makes the job for the machine's store.
async fn start(
    server: &RedisServer,
    name: &str,
    ahead: SignedDuration,
    job: impl FnOnce(&RedisStore) -> Job,
) -> Machine {
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let options = LeaseOptions::new(Duration::from_secs(5)).unwrap();
    let options = options.with_poll_interval(Duration::from_millis(50)).unwrap();
    let locker =
        Locker::new(store.clone()).with_lessee(name.parse().unwrap()).with_options(options);
    let reports = Arc::new(Reports::default());
    let scheduler = Scheduler::builder(locker, store.clone())
        .with_metrics(Arc::<Reports>::clone(&reports))
        .with_job(job(&store))
        .with_wall_clock(Arc::new(SkewedWallClock::new(Timestamp::now() + ahead, 1.0)))
        .build()
        .unwrap();
    let handle = scheduler.handle();
    Machine { reports, handle, store, task: tokio::spawn(scheduler.run()) }
}

fn switch(store: &RedisStore) -> TableSwitch {
    TableSwitch::new("switch".parse().unwrap(), &Locker::new(store.clone()), store.clone())
}

#[tokio::test]
async fn job_runs_if_switched_on_and_free() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let job = |store: &RedisStore| {
        let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
        let job = Job::new("export".parse().unwrap(), move |job| {
            let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
            async move {
                begun.notify_one();
                finish.notified().await;
                job.note("17 events");
                Ok(())
            }
        });
        job.with_switch(switch(store))
    };
    let a = start(&server, "a", SignedDuration::ZERO, job).await;
    let b = start(&server, "b", SignedDuration::ZERO, job).await;

    let off = a.handle.run_now("export").await.unwrap();
    assert!(matches!(off.outcome, Outcome::Disabled(DisabledBy::Switch)), "{off:?}");
    switch(&b.store).turn_on().await.unwrap();

    let of_a = a.handle.clone();
    let running = tokio::spawn(async move { of_a.run_now("export").await.unwrap() });
    begun.notified().await;
    let busy = b.handle.run_now("export").await.unwrap();
    finish.notify_one();
    let Outcome::Skipped(Skip::Held(holder)) = &busy.outcome else { panic!("{busy:?}") };
    assert_eq!(holder.lessee.as_str(), "a");
    assert!(matches!(running.await.unwrap().outcome, Outcome::Finished));

    let past = b.handle.last_run("export").await.unwrap().unwrap();
    assert_eq!(
        (past.by.as_str(), past.ending, past.note.as_str()),
        ("a", Ending::Finished, "17 events")
    );
    assert_eq!(b.store.holder(&"export".parse().unwrap()).await.unwrap(), None, "it is free");

    let c = start(&server, "c", SignedDuration::ZERO, job).await;
    assert!(switch(&c.store).is_on().await.unwrap());
    switch(&c.store).turn_off().await.unwrap();
    let off = a.handle.run_now("export").await.unwrap();
    assert!(matches!(off.outcome, Outcome::Disabled(DisabledBy::Switch)), "{off:?}");
    assert_eq!(c.handle.history("export").await.unwrap().len(), 1);
}

#[tokio::test]
async fn job_runs_only_while_enabled_and_in_production() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let (is_production, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let machine = start(&server, "a", SignedDuration::ZERO, |store| {
        let (is_production, runs) = (Arc::clone(&is_production), Arc::clone(&runs));
        let job = Job::new("import".parse().unwrap(), move |_job| {
            runs.fetch_add(1, Ordering::SeqCst);
            async { Ok(()) }
        });
        job.with_switch(switch(store)).only_if(move || is_production.load(Ordering::SeqCst))
    })
    .await;
    let outcome = async || machine.handle.run_now("import").await.unwrap().outcome;

    assert!(matches!(outcome().await, Outcome::Disabled(DisabledBy::OnlyIf)));
    switch(&machine.store).turn_on().await.unwrap();
    assert!(matches!(outcome().await, Outcome::Disabled(DisabledBy::OnlyIf)));
    is_production.store(true, Ordering::SeqCst);
    assert!(matches!(outcome().await, Outcome::Finished));
    switch(&machine.store).turn_off().await.unwrap();
    assert!(matches!(outcome().await, Outcome::Disabled(DisabledBy::Switch)));

    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn machines_with_clocks_apart_run_each_tick_once() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let schedule = Schedule::cron("*/4 * * * * *", "UTC").unwrap();
    let begun = Arc::new(Mutex::new(BTreeMap::<Timestamp, usize>::new()));
    let job = |_store: &RedisStore| {
        let begun = Arc::clone(&begun);
        let job = Job::new("tick".parse().unwrap(), move |job| {
            *begun.lock().unwrap().entry(job.scheduled()).or_default() += 1;
            async {
                sleep(Duration::from_millis(100)).await;
                Ok(())
            }
        });
        job.on(schedule.clone())
    };
    let mut machines = Vec::new();
    for (name, millis) in [("a", 0), ("b", 700), ("c", -1300), ("d", 0)] {
        machines.push(start(&server, name, SignedDuration::from_millis(millis), job).await);
    }

    until(|| begun.lock().unwrap().len() >= 6).await;
    for machine in &machines {
        machine.handle.stop();
    }
    let mut reported = BTreeSet::new();
    for machine in machines {
        machine.task.await.unwrap();
        reported.extend(machine.reports.ticks(&schedule));
    }

    let begun = begun.lock().unwrap();
    println!("begun {begun:?}, reported {reported:?}");
    assert!(begun.values().all(|times| *times == 1), "{begun:?}");
    // A paused machine may miss ticks, but reports them.
    let (first, last) = (*begun.keys().next().unwrap(), *begun.keys().last().unwrap());
    for tick in ticks_between(&schedule, first, last) {
        let is_known = begun.contains_key(&tick) || reported.contains(&tick);
        assert!(is_known, "{tick} was neither run nor reported: {begun:?}, {reported:?}");
    }
}

#[tokio::test]
async fn tick_of_dead_machine_is_not_restarted_and_next_one_runs() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let schedule = Schedule::every(Duration::from_secs(15)).unwrap();
    let begun = Arc::new(Mutex::new(Vec::new()));
    let job_of = |by: &'static str| {
        let (begun, schedule) = (Arc::clone(&begun), schedule.clone());
        move |_store: &RedisStore| {
            let job = Job::new("tick".parse().unwrap(), move |job| {
                begun.lock().unwrap().push((job.scheduled(), by));
                std::future::pending()
            });
            job.on(schedule)
        }
    };
    // The end of the machine's own runtime stands for the death of a process.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let url = server.url();
    let job = job_of("dies");
    runtime.spawn(async move {
        let store = RedisStore::connect(&url).await.unwrap();
        let options = LeaseOptions::new(Duration::from_secs(5)).unwrap();
        let locker = Locker::new(store.clone()).with_options(options);
        let job = job(&store);
        Scheduler::builder(locker, store).with_job(job).build().unwrap().run().await;
    });
    until(|| !begun.lock().unwrap().is_empty()).await;
    runtime.shutdown_background();

    let heir = start(&server, "heir", SignedDuration::ZERO, job_of("heir")).await;
    let of_heir = |begun: &[(Timestamp, &str)]| begun.iter().position(|(_, by)| *by == "heir");
    until(|| of_heir(&begun.lock().unwrap()).is_some()).await;

    let begun = begun.lock().unwrap().clone();
    let (died, next) = begun.split_at(of_heir(&begun).unwrap());
    let (died, next) = (died.last().unwrap().0, next[0].0);
    assert!(next > died, "a tick of the dead machine, or an earlier tick, was started: {begun:?}");
    // If the other machine started late, it reports the ticks until then.
    let reported = heir.reports.ticks(&schedule);
    let between = ticks_between(&schedule, died, next).skip(1);
    let lost: Vec<_> = between.filter(|tick| !reported.contains(tick)).collect();
    assert!(lost.is_empty(), "neither run nor reported: {lost:?} of {begun:?}, {reported:?}");
    let history = heir.handle.history("tick").await.unwrap();
    assert!(history.iter().any(|run| run.ending == Ending::Died), "{history:?}");
}

/// From `first`, which must be a tick, to the last tick before `end`.
fn ticks_between(
    schedule: &Schedule,
    first: Timestamp,
    end: Timestamp,
) -> impl Iterator<Item = Timestamp> {
    let ticks = std::iter::successors(Some(first), |tick| schedule.next(*tick));
    ticks.take_while(move |tick| *tick < end)
}

async fn until(condition: impl Fn() -> bool + Send + Sync) {
    let waiting = async {
        while !condition() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(60 * 5), waiting).await.unwrap();
}
