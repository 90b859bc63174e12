//! Runs of jobs, also after a worker has crashed.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{FencingToken, Handed, StoreError, Ttl};
use lease_export::{
    ExportError, Exporter, Limits, Parts, Put, Record, Response, Scheduled, ServiceError, Sink,
    Switch, Worked,
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::world::{TTL, VISIBILITY, World, everywhere, key};

everywhere! {
    job_reports_number_of_sent_events
    job_without_pending_events_sends_nothing
    job_runs_under_the_lease_that_it_carries
    job_releases_lease_and_leaves_queue
    job_with_failing_sink_releases_lease
    job_with_panicking_sink_releases_lease
    dropped_job_releases_lease_and_is_redelivered
    hand_over_is_adopted_once
    job_with_expired_hand_over_obtains_lease_anew
    job_returns_to_queue_while_lease_is_held
    waiting_jobs_are_replaced_by_one
    backlog_does_not_block_the_job_with_the_lease
    job_of_disabled_export_is_removed
    invalid_job_does_not_block_the_queue
    job_of_another_exporter_returns_to_queue
    long_export_keeps_its_lease_and_its_job
    export_with_lost_lease_stops_and_job_is_redelivered
    worker_stops_after_its_current_job
    worker_with_hanging_sink_stops_within_grace
}

async fn schedule(world: &World) {
    let scheduled = world.exporter().schedule_job().await.unwrap();
    assert!(matches!(scheduled, Scheduled::Enqueued(_)), "{scheduled:?}");
}

async fn is_free(world: &World) -> bool {
    world.locker().holder(&key()).await.unwrap().is_none()
}

async fn job_reports_number_of_sent_events(world: World) {
    let exporter = world.enabled().await;
    world.append(12).await;
    schedule(&world).await;

    let worked = exporter.run_next_job(Duration::ZERO).await.unwrap();

    assert_eq!(worked.to_string(), "job 1: 12 events sent");
}

async fn job_without_pending_events_sends_nothing(world: World) {
    let exporter = world.enabled().await;
    schedule(&world).await;

    let worked = exporter.run_next_job(Duration::ZERO).await.unwrap();

    assert_eq!(worked.to_string(), "job 1: 0 events sent");
    assert_eq!(world.sink.requests(), [0; 0]);
}

async fn job_runs_under_the_lease_that_it_carries(world: World) {
    let exporter = world.enabled().await;
    world.append(1).await;
    schedule(&world).await;
    let handed = world.locker().holder(&key()).await.unwrap().unwrap();

    let worked = exporter.run_next_job(Duration::ZERO).await.unwrap();

    assert!(matches!(worked, Worked::Done(..)), "{worked:?}");
    assert!(Some(world.sink.taken()[0].0) > handed.token);
}

async fn job_releases_lease_and_leaves_queue(world: World) {
    let exporter = world.enabled().await;
    world.append(1).await;
    schedule(&world).await;

    let worked = exporter.run_next_job(Duration::ZERO).await.unwrap();

    assert!(matches!(worked, Worked::Done(..)), "{worked:?}");
    assert!(is_free(&world).await);
    assert_eq!(world.queue().count().await.unwrap(), 0);
    schedule(&world).await;
}

async fn job_with_failing_sink_releases_lease(world: World) {
    let exporter = world.enabled().await;
    world.append(1).await;
    world.sink.respond([Response::Unavailable]);
    schedule(&world).await;

    let worked = exporter.run_next_job(Duration::ZERO).await.unwrap();

    assert!(matches!(&worked, Worked::Done(_, exported) if exported.failed == 1), "{worked:?}");
    assert!(is_free(&world).await);
    assert_eq!(exporter.num_pending_events().await.unwrap(), 1);
}

#[derive(Debug)]
struct Panics;

#[async_trait::async_trait]
impl Sink for Panics {
    fn limits(&self) -> Limits {
        Limits::FIREHOSE
    }

    async fn put(&self, _: FencingToken, _: &[Record]) -> Result<Vec<Put>, ServiceError> {
        panic!("injected fault");
    }
}

async fn job_with_panicking_sink_releases_lease(world: World) {
    world.enabled().await;
    let exporter = world.exporter_to(Arc::new(Panics));
    world.append(1).await;
    schedule(&world).await;

    let panicked = tokio::spawn(async move { exporter.run_next_job(Duration::ZERO).await }).await;

    assert!(panicked.is_err_and(|error| error.is_panic()));
    // A background task releases the lease long before the ttl ends.
    let locker = world.locker();
    let waited = timeout(TTL / 2, locker.wait_until_obtained(&key())).await;
    drop(waited.unwrap().unwrap());
    locker.close().await;
    let again = world.exporter().run_next_job(VISIBILITY * 4).await.unwrap();
    assert!(matches!(&again, Worked::Done(_, exported) if exported.sent == 1), "{again:?}");
}

async fn dropped_job_releases_lease_and_is_redelivered(world: World) {
    let exporter = world.enabled().await;
    world.append(1).await;
    world.sink.respond([Response::Hang]);
    schedule(&world).await;

    let dropped = timeout(TTL / 4, exporter.run_next_job(Duration::ZERO)).await;

    assert!(dropped.is_err());
    let waited = timeout(TTL / 2, world.locker().wait_until_obtained(&key())).await;
    let lease = waited.unwrap().unwrap();
    lease.release().await.unwrap();
    let again = exporter.run_next_job(VISIBILITY * 4).await.unwrap();
    assert!(matches!(&again, Worked::Done(_, exported) if exported.sent == 1), "{again:?}");
}

async fn hand_over_is_adopted_once(world: World) {
    let exporter = world.enabled().await;
    world.append(1).await;
    schedule(&world).await;
    let queue = world.queue();
    // The worker crashes after adopting the lease.
    let delivery = queue.take(Duration::ZERO).await.unwrap().unwrap();
    let job: serde_json::Value = serde_json::from_str(delivery.body()).unwrap();
    let handed: lease_core::HandOver = serde_json::from_value(job["hand_over"].clone()).unwrap();
    let lease = world.locker().resume(handed.clone()).await.unwrap().unwrap();
    assert!(world.locker().resume(handed).await.unwrap().is_none());
    lease.abandon();

    // The first delivery finds the lease held. A later delivery comes after its expiry.
    let held = exporter.run_next_job(VISIBILITY * 2).await.unwrap();
    assert!(matches!(held, Worked::Returned(..)), "{held:?}");
    let mut worked = held;
    for _ in 0..10 {
        if matches!(worked, Worked::Done(..)) {
            break;
        }
        worked = exporter.run_next_job(TTL).await.unwrap();
    }
    assert!(matches!(&worked, Worked::Done(_, exported) if exported.sent == 1), "{worked:?}");
}

async fn job_with_expired_hand_over_obtains_lease_anew(world: World) {
    let exporter = world.enabled().await;
    world.append(1).await;
    let short = exporter.clone().with_hand_over_wait(Duration::from_millis(100)).unwrap();
    let scheduled = short.schedule_job().await.unwrap();
    assert!(matches!(scheduled, Scheduled::Enqueued(_)), "{scheduled:?}");

    let lease = world.locker().wait_until_obtained(&key()).await.unwrap();
    lease.release().await.unwrap();
    let worked = exporter.run_next_job(Duration::ZERO).await.unwrap();

    assert!(matches!(&worked, Worked::Done(_, exported) if exported.sent == 1), "{worked:?}");
}

async fn job_returns_to_queue_while_lease_is_held(world: World) {
    let exporter = world.enabled().await;
    world.append(1).await;
    let short = exporter.clone().with_hand_over_wait(Duration::from_millis(100)).unwrap();
    let _scheduled = short.schedule_job().await.unwrap();
    let other = world.locker().wait_until_obtained(&key()).await.unwrap();

    let worked = exporter.run_next_job(Duration::ZERO).await.unwrap();

    let Worked::Returned(_, holder) = &worked else { panic!("{worked:?}") };
    assert!(holder.holds(other.grant()));
    assert_eq!(world.queue().count().await.unwrap(), 1);
    assert_eq!(world.sink.requests(), [0; 0]);
    assert!(other.is_held());
    other.release().await.unwrap();
    let again = exporter.run_next_job(Duration::from_secs(3)).await.unwrap();
    assert!(matches!(&again, Worked::Done(_, exported) if exported.sent == 1), "{again:?}");
}

async fn schedule_expiring_job(world: &World) {
    let short = world.exporter().with_hand_over_wait(Duration::from_millis(100)).unwrap();
    let scheduled = short.schedule_job().await.unwrap();
    assert!(matches!(scheduled, Scheduled::Enqueued(_)), "{scheduled:?}");
    let lease = world.locker().wait_until_obtained(&key()).await.unwrap();
    lease.release().await.unwrap();
}

async fn waiting_jobs_are_replaced_by_one(world: World) {
    let exporter = world.enabled().await;
    world.append(1).await;
    for _ in 0..3 {
        schedule_expiring_job(&world).await;
    }

    schedule(&world).await;

    assert_eq!(world.queue().count().await.unwrap(), 1);
    let worked = exporter.run_next_job(Duration::ZERO).await.unwrap();
    assert!(matches!(&worked, Worked::Done(_, exported) if exported.sent == 1), "{worked:?}");
    assert_eq!(world.queue().count().await.unwrap(), 0);
}

async fn backlog_does_not_block_the_job_with_the_lease(world: World) {
    let exporter = world.enabled().await;
    world.append(1).await;
    let queue = world.queue();
    schedule_expiring_job(&world).await;
    let dead = queue.take(Duration::ZERO).await.unwrap().unwrap();
    let long = exporter.clone().with_hand_over_wait(Duration::from_secs(60)).unwrap();
    let _scheduled = long.schedule_job().await.unwrap();
    let alive = queue.take(Duration::ZERO).await.unwrap().unwrap();
    for delivery in [&dead, &alive] {
        assert!(queue.finish(delivery).await.unwrap());
    }
    for job in [&dead, &dead, &dead, &alive] {
        queue.enqueue(job.body()).await.unwrap();
    }

    let mut returned = 0;
    loop {
        match exporter.run_next_job(Duration::ZERO).await.unwrap() {
            Worked::Returned(..) => returned += 1,
            Worked::Done(_, exported) => break assert_eq!(exported.sent, 1),
            other => panic!("{other:?}"),
        }
        assert!(returned <= 3, "the job with the lease runs before the returned jobs");
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn job_with_held_lease_is_retried_with_backoff() {
    let world = World::in_memory();
    let exporter = world.enabled().await;
    schedule_expiring_job(&world).await;
    let lease = world.locker().wait_until_obtained(&key()).await.unwrap();
    let stop = CancellationToken::new();

    let working = exporter.run_jobs(&stop);
    let stopping = async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        stop.cancel();
    };
    tokio::join!(working, stopping);

    assert!(lease.is_held());
    let delivery = world.queue().take(Duration::from_secs(60)).await.unwrap().unwrap();
    assert!((100..150).contains(&delivery.number()), "{} deliveries in an hour", delivery.number());
}

async fn job_of_disabled_export_is_removed(world: World) {
    let exporter = world.enabled().await;
    world.append(1).await;
    schedule(&world).await;
    exporter.disable().await.unwrap();

    let worked = exporter.run_next_job(Duration::ZERO).await.unwrap();

    assert!(matches!(worked, Worked::Disabled(_)), "{worked:?}");
    assert!(is_free(&world).await);
    assert_eq!(world.queue().count().await.unwrap(), 0);
    assert_eq!(exporter.num_pending_events().await.unwrap(), 1);
}

async fn invalid_job_does_not_block_the_queue(world: World) {
    let exporter = world.enabled().await;
    world.append(1).await;
    schedule(&world).await;
    let queue = world.queue();
    let job = queue.take(Duration::ZERO).await.unwrap().unwrap();
    assert!(queue.finish(&job).await.unwrap());
    for body in ["{\"hand_over\": 7}", job.body()] {
        queue.enqueue(body).await.unwrap();
    }

    let first = exporter.run_next_job(Duration::ZERO).await.unwrap();
    let second = exporter.run_next_job(Duration::ZERO).await.unwrap();

    assert!(matches!(first, Worked::Unreadable(_)), "{first:?}");
    assert!(matches!(second, Worked::Done(..)), "{second:?}");
    assert_eq!(world.queue().count().await.unwrap(), 0);
}

async fn job_of_another_exporter_returns_to_queue(world: World) {
    let exporter = world.enabled().await;
    world.append(1).await;
    schedule(&world).await;
    let handed = world.locker().holder(&key()).await.unwrap().unwrap();
    let other = Exporter::new(
        world.locker(),
        "other".parse().unwrap(),
        Parts {
            switch: Arc::new(NoSwitch),
            queue: world.queue(),
            buffer: world.buffer(),
            sink: Arc::new(world.sink.clone()),
        },
    );

    let worked = other.run_next_job(Duration::ZERO).await.unwrap();

    assert!(matches!(&worked, Worked::Foreign(_, of) if *of == key()), "{worked:?}");
    assert_eq!(world.sink.requests(), [0; 0]);
    assert_eq!(world.locker().holder(&key()).await.unwrap().unwrap().grant, handed.grant);
    let again = exporter.run_next_job(Duration::from_secs(30)).await.unwrap();
    assert!(matches!(&again, Worked::Done(_, exported) if exported.sent == 1), "{again:?}");
}

#[derive(Debug)]
struct NoSwitch;

#[async_trait::async_trait]
impl Switch for NoSwitch {
    async fn is_on(&self) -> Result<bool, StoreError> {
        Ok(true)
    }
}

#[derive(Debug)]
struct Slow(lease_export::MemorySink, Duration);

#[async_trait::async_trait]
impl Sink for Slow {
    fn limits(&self) -> Limits {
        self.0.limits()
    }

    async fn put(&self, token: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError> {
        tokio::time::sleep(self.1).await;
        self.0.put(token, records).await
    }
}

async fn long_export_keeps_its_lease_and_its_job(world: World) {
    world.enabled().await;
    world.append(1).await;
    // Each request takes longer than the lease's ttl and the job's visibility.
    let slow = world.exporter_to(Arc::new(Slow(world.sink.clone(), TTL * 3 / 2)));
    schedule(&world).await;

    let other = world.exporter();
    let meanwhile = async {
        let worked = other.run_next_job(VISIBILITY * 2).await.unwrap();
        assert!(matches!(worked, Worked::Idle), "{worked:?}");
        assert_eq!(other.flush_pending_events(None).await.unwrap(), 0);
    };
    let working = async {
        let worked = slow.run_next_job(Duration::ZERO).await.unwrap();
        assert!(matches!(&worked, Worked::Done(_, exported) if exported.sent == 1), "{worked:?}");
    };
    let taken = async {
        assert_eq!(world.queue().take(Duration::ZERO).await.unwrap(), None);
        meanwhile.await;
    };
    let mut working = std::pin::pin!(working);
    tokio::select! {
        biased;
        () = &mut working => panic!("the export ended before the sink answered"),
        () = tokio::time::sleep(VISIBILITY / 5) => (),
    }
    tokio::join!(working, taken);

    assert_eq!(world.arrived(), [1]);
    assert_eq!(world.queue().count().await.unwrap(), 0);
}

#[derive(Debug)]
struct Overtaken(lease_export::MemorySink, Arc<dyn lease_export::EventBuffer>);

#[async_trait::async_trait]
impl Sink for Overtaken {
    fn limits(&self) -> Limits {
        self.0.limits()
    }

    async fn put(&self, token: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError> {
        let later = FencingToken::new(token.get() + 1).unwrap();
        let most = lease_export::ReadLimit::new(1, 1);
        let _seen = self.1.read(later, None, most).await?;
        self.0.put(token, records).await
    }
}

async fn export_with_lost_lease_stops_and_job_is_redelivered(world: World) {
    world.enabled().await;
    world.append(3).await;
    let exporter = world.exporter_to(Arc::new(Overtaken(world.sink.clone(), world.buffer())));
    schedule(&world).await;

    let error = exporter.run_next_job(Duration::ZERO).await.unwrap_err();

    assert!(matches!(error, ExportError::Overtaken { .. }), "{error:?}");
    assert_eq!(exporter.num_pending_events().await.unwrap(), 3, "a former holder removes no event");
    assert_eq!(world.queue().count().await.unwrap(), 1);
}

async fn worker_with_hanging_sink_stops_within_grace(world: World) {
    let exporter = world.enabled().await.with_put_limit(Duration::from_secs(3600)).unwrap();
    let exporter = exporter.with_stop_grace(Duration::from_millis(100));
    world.append(1).await;
    world.sink.respond([Response::Hang]);
    schedule(&world).await;
    let stop = CancellationToken::new();

    let working = timeout(Duration::from_secs(600), exporter.run_jobs(&stop));
    let stopping = async {
        while world.sink.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
    };
    let (stopped, ()) = tokio::join!(working, stopping);

    assert!(stopped.is_ok(), "the worker did not stop");
    let lease = world.locker().wait_until_obtained(&key()).await.unwrap();
    lease.release().await.unwrap();
    assert_eq!(world.queue().count().await.unwrap(), 1, "the job stays in the queue");
    assert_eq!(exporter.num_pending_events().await.unwrap(), 1);
}

async fn worker_stops_after_its_current_job(world: World) {
    let exporter = world.enabled().await;
    world.append(5).await;
    schedule(&world).await;
    let stop = CancellationToken::new();

    let working = exporter.run_jobs(&stop);
    let stopping = async {
        while !is_free(&world).await || world.queue().count().await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
    };
    tokio::join!(working, stopping);

    assert_eq!(world.arrived(), [1, 2, 3, 4, 5]);
    let lease = world.locker().wait_until_obtained(&key()).await.unwrap();
    let handed = lease.hand_over(Ttl::clamped(TTL)).await.unwrap();
    assert!(matches!(handed, Handed::Over(_)));
}
