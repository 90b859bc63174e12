//! `lease jobs`: commands to a scheduler that runs in another process, the one of the test.

use lease_core::{Change, Lease, LeaseKey, Locker, Value};
use lease_scheduler::{Job, JobResult, Schedule, Scheduler};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use std::sync::Arc;

use crate::place::{Place, text, until};

fn url(place: &Place) -> String {
    format!("sqlite:{}", place.path("leases.db").display())
}

/// Starts a scheduler on the store of `place`, with a job `import` that writes its argument `day` to a file and waits for
/// `finish`, and with a nightly job. It ends with the runtime.
fn start(place: &Place, finish: &Arc<Notify>) -> Runtime {
    let runtime = Runtime::new().unwrap();
    let url = url(place);
    let (file, finish) = (place.path("day"), Arc::clone(finish));
    let import = Job::new("import".parse().unwrap(), move |job| {
        let (file, finish) = (file.clone(), Arc::clone(&finish));
        async move {
            let day = job.arguments().get("day").and_then(|day| day.as_text()).unwrap_or("none");
            std::fs::write(file, format!("{day}\n"))?;
            finish.notified().await;
            JobResult::Ok(())
        }
    });
    let nightly = Job::new("nightly".parse().unwrap(), |_job| async { Ok(()) });
    let nightly = nightly.on(Schedule::cron("0 3 1 1 *", "UTC").unwrap());
    runtime.spawn(async move {
        let store = lease_store::connect(&url).await.unwrap();
        let (locker, table) = (Locker::new(store.clone()), store.table().unwrap());
        let scheduler = Scheduler::builder(locker, table).with_job(import).with_job(nightly);
        scheduler.build().unwrap().run().await;
    });
    let listed = || text(&place.output(&["jobs"]).stdout).lines().count() == 2;
    until("both jobs are listed", listed);
    runtime
}

#[test]
fn job_is_triggered_with_arguments_and_shown_in_the_history() {
    let place = Place::new();
    let finish = Arc::new(Notify::new());
    let _runtime = start(&place, &finish);
    let trigger = ["jobs", "trigger", "import", "--wait", "60s", "day=monday"];

    let started = place.output(&trigger);
    assert_eq!(started.status.code(), Some(0), "{started:?}");
    assert!(text(&started.stdout).ends_with("\tstarted\n"), "{started:?}");
    assert_eq!(place.content("day"), "monday");
    assert_eq!(place.code(&trigger), 75, "the job runs");
    finish.notify_one();

    let history = || place.output(&["--json", "jobs", "history", "import", "--since", "1h"]);
    until("the run has ended", || text(&history().stdout).contains("\"ending\":\"finished\""));
    assert_eq!(text(&history().stdout).lines().count(), 1);
    let failed = place.output(&["jobs", "history", "--ending", "failed"]);
    assert_eq!(text(&failed.stdout), "");
}

#[test]
fn job_is_paused_resumed_and_repaired() {
    let place = Place::new();
    let _runtime = start(&place, &Arc::new(Notify::new()));
    let shown = || text(&place.output(&["--json", "jobs", "list", "nightly"]).stdout).to_owned();
    assert!(shown().contains("-01-01T03:00:00Z"), "the next tick: {}", shown());

    assert_eq!(place.code(&["jobs", "pause", "nightly", "--why", "moving"]), 0);
    assert!(shown().contains("\"why\":\"moving\""), "{}", shown());
    assert_eq!(place.code(&["jobs", "resume", "nightly"]), 0);
    assert!(shown().contains("\"paused\":null"), "{}", shown());
    let repaired = place.output(&["jobs", "repair", "nightly"]);
    assert_eq!(repaired.status.code(), Some(0), "{repaired:?}");
    for command in ["pause", "resume", "trigger", "repair"] {
        assert_eq!(place.code(&["jobs", command, "unknown"]), 64, "{command}");
    }
}

#[test]
fn trigger_without_a_scheduler_is_withdrawn() {
    let place = Place::new();
    let runtime = start(&place, &Arc::new(Notify::new()));
    drop(runtime);

    let trigger = place.output(&["jobs", "trigger", "import", "--wait", "100ms"]);

    assert_eq!(trigger.status.code(), Some(69), "{trigger:?}");
    assert!(text(&trigger.stdout).ends_with("\twithdrawn\n"), "{trigger:?}");
    assert_eq!(place.code(&["jobs", "trigger", "import", "--detach"]), 0);
    assert_eq!(place.code(&["jobs", "trigger", "import", "--detach"]), 75, "another one waits");
}

/// As a scheduler that takes the trigger of `import` and has not started it. Returns the lease of the job.
async fn take(place: &Place) -> Lease {
    let store = lease_store::connect(&url(place)).await.unwrap();
    let (locker, table) = (Locker::new(store.clone()), store.table().unwrap());
    let obtain = async |key: &str| {
        let key: LeaseKey = key.parse().unwrap();
        locker.obtain(&key).await.unwrap().into_lease().unwrap()
    };
    let job = obtain("import").await;
    let control = obtain("import/control").await;
    let Some(Value::Map(mut request)) = control.attributes().get("job_request").cloned() else {
        panic!("no trigger waits")
    };
    request.insert("taken_by".to_owned(), "a 1".into());
    let taken = Change::new().set("job_request", Value::Map(request));
    let written = control.update(&*table, &taken).await.unwrap();
    assert_eq!(written, lease_core::Written::Applied);
    let _released = control.release().await;
    job
}

#[test]
fn trigger_that_cannot_be_withdrawn_exits_with_69() {
    let place = Place::new();
    drop(start(&place, &Arc::new(Notify::new())));
    let trigger = ["jobs", "trigger", "import", "--id", "one"];
    assert_eq!(place.code(&[&trigger[..], &["--detach"]].concat()), 0);
    let runtime = Runtime::new().unwrap();
    let _job = runtime.block_on(take(&place));

    let waited = place.output(&[&trigger[..], &["--wait", "100ms"]].concat());

    assert_eq!(waited.status.code(), Some(69), "{waited:?}");
    assert!(text(&waited.stdout).ends_with("\twaiting\n"), "{waited:?}");
}

#[test]
fn repeated_detached_trigger_prints_its_state() {
    let place = Place::new();
    let _runtime = start(&place, &Arc::new(Notify::new()));
    let trigger = ["jobs", "trigger", "import", "--id", "one"];
    assert_eq!(place.code(&[&trigger[..], &["--wait", "60s"]].concat()), 0);

    let repeated = place.output(&[&trigger[..], &["--detach"]].concat());

    assert_eq!(repeated.status.code(), Some(0), "{repeated:?}");
    assert!(text(&repeated.stdout).ends_with("\tstarted\n"), "{repeated:?}");
}
