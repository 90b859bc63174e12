//! Schedulers on a real Redis, in real time: what does not depend on the store is shown in
//! lease-scheduler itself.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails, and figures are printed"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lease_core::{LeaseOptions, LockStore, Locker};
use lease_redis::RedisStore;
use lease_scheduler::{
    DisabledBy, Ending, Job, Outcome, Schedule, Scheduler, SchedulerHandle, SkewedWallClock, Skip,
    Switch, TableSwitch,
};
use lease_tests::redis::{RedisServer, available};
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// A process: it has a connection of its own.
struct Machine {
    handle: SchedulerHandle,
    store: RedisStore,
    task: JoinHandle<()>,
}

/// Starts a machine whose clock is `ahead`, with one job, of the machine's making.
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
    let scheduler = Scheduler::builder(locker, store.clone())
        .with_job(job(&store))
        .with_wall_clock(Arc::new(SkewedWallClock::new(Timestamp::now() + ahead, 1.0)))
        .build()
        .unwrap();
    let handle = scheduler.handle();
    Machine { handle, store, task: tokio::spawn(scheduler.run()) }
}

fn switch(store: &RedisStore) -> TableSwitch {
    TableSwitch::new("switch".parse().unwrap(), &Locker::new(store.clone()), store.clone())
}

#[tokio::test]
async fn a_job_runs_where_it_is_switched_on_and_free_and_tells_what_it_came_to() {
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

    // A process that starts later finds all that as it was left.
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
async fn machines_whose_clocks_are_apart_run_each_tick_once() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let ticks = Arc::new(Mutex::new(BTreeMap::<Timestamp, usize>::new()));
    let job = |_store: &RedisStore| {
        let ticks = Arc::clone(&ticks);
        let job = Job::new("tick".parse().unwrap(), move |job| {
            *ticks.lock().unwrap().entry(job.scheduled()).or_default() += 1;
            async {
                sleep(Duration::from_millis(100)).await;
                Ok(())
            }
        });
        job.on(Schedule::cron("*/4 * * * * *", "UTC").unwrap())
    };
    let mut machines = Vec::new();
    for (name, millis) in [("a", 0), ("b", 700), ("c", -1300), ("d", 0)] {
        machines.push(start(&server, name, SignedDuration::from_millis(millis), job).await);
    }
    // Of the ticks before, each machine knows only those since it came, by its own clock.
    let all_there = Timestamp::now() + SignedDuration::from_secs(1);

    // A tick lasts until the next: a machine that stands still for less misses none.
    sleep(8 * TICK).await;
    for machine in &machines {
        machine.handle.stop();
    }
    for machine in machines {
        machine.task.await.unwrap();
    }

    let mut ticks = ticks.lock().unwrap();
    println!("{ticks:?}");
    assert!(ticks.values().all(|runs| *runs == 1), "{ticks:?}");
    ticks.retain(|tick, _| *tick > all_there);
    let (first, last) = (*ticks.keys().next().unwrap(), *ticks.keys().last().unwrap());
    assert!(first.duration_since(all_there).unsigned_abs() <= TICK, "from {first}: {ticks:?}");
    let span = last.duration_since(first).unsigned_abs().as_secs() / TICK.as_secs() + 1;
    assert_eq!(ticks.len(), usize::try_from(span).unwrap(), "from {first}: {ticks:?}");
    assert!(span >= 6, "{span}");
}

const TICK: Duration = Duration::from_secs(4);

#[tokio::test]
async fn a_tick_whose_machine_died_is_not_begun_again_and_the_next_one_is() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let begun = Arc::new(Mutex::new(Vec::new()));
    let job_of = |by: &'static str| {
        let begun = Arc::clone(&begun);
        move |_store: &RedisStore| {
            let job = Job::new("tick".parse().unwrap(), move |job| {
                begun.lock().unwrap().push((job.scheduled(), by));
                std::future::pending()
            });
            job.on(Schedule::every(Duration::from_secs(15)).unwrap())
        }
    };
    // On a runtime of its own, which ends as a process does.
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
    let limit = Duration::from_mins(5);
    timeout(limit, async {
        while begun.lock().unwrap().is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    runtime.shutdown_background();

    let heir = start(&server, "heir", SignedDuration::ZERO, job_of("heir")).await;
    timeout(limit, async {
        while begun.lock().unwrap().len() < 2 {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();

    let begun = begun.lock().unwrap().clone();
    assert_eq!((begun[0].1, begun[1].1), ("dies", "heir"));
    assert_eq!(begun[1].0.duration_since(begun[0].0).as_secs(), 15, "the next tick, no other");
    let history = heir.handle.history("tick").await.unwrap();
    assert!(history.iter().any(|run| run.ending == Ending::Died), "{history:?}");
}
