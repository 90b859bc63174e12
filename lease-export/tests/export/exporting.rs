//! When an exporter exports, and when it does not.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::{Attempt, Ttl};
use lease_export::queue::{Delivery, JobId, JobQueue};
use lease_export::{
    ExportError, Flushed, JobFinished, Scheduled, ServiceError, ServiceErrorKind, Worked,
};

use crate::world::{World, everywhere, key};

everywhere! {
    enabling_and_disabling_is_for_everybody
    a_job_is_enqueued_where_the_lease_is_free
    no_job_is_enqueued_where_the_lease_is_held
    no_job_is_enqueued_where_export_is_disabled
    a_flush_answers_how_many_it_has_sent
    a_flush_sends_nothing_where_the_lease_is_held
    a_flush_sends_nothing_where_export_is_disabled
    pending_events_are_counted_by_anybody
    while_a_job_waits_nobody_else_exports
    a_job_that_is_not_run_frees_its_own_lease_alone
    what_cannot_be_enqueued_frees_the_lease_at_once
}

async fn enabling_and_disabling_is_for_everybody(world: World) {
    let (exporter, other) = (world.exporter(), world.exporter());
    assert!(!other.is_enabled().await.unwrap());

    exporter.enable().await.unwrap();
    assert!(other.is_enabled().await.unwrap());

    exporter.disable().await.unwrap();
    assert!(!other.is_enabled().await.unwrap());
}

async fn a_job_is_enqueued_where_the_lease_is_free(world: World) {
    let exporter = world.enabled().await;

    let scheduled = exporter.schedule_job().await.unwrap();

    assert!(matches!(scheduled, Scheduled::Enqueued(_)), "{scheduled:?}");
    assert_eq!(world.queue().count().await.unwrap(), 1);
}

async fn no_job_is_enqueued_where_the_lease_is_held(world: World) {
    let exporter = world.enabled().await;
    let _lease = world.locker().wait_until_obtained(&key()).await.unwrap();

    let scheduled = exporter.schedule_job().await.unwrap();

    assert!(matches!(scheduled, Scheduled::Held(_)), "{scheduled:?}");
    assert_eq!(world.queue().count().await.unwrap(), 0);
}

async fn no_job_is_enqueued_where_export_is_disabled(world: World) {
    let scheduled = world.exporter().schedule_job().await.unwrap();

    assert_eq!(scheduled, Scheduled::Disabled);
    assert_eq!(world.queue().count().await.unwrap(), 0);
    assert_eq!(world.locker().holder(&key()).await.unwrap(), None);
}

async fn a_flush_answers_how_many_it_has_sent(world: World) {
    let exporter = world.enabled().await;
    world.append(3).await;

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 3);

    assert_eq!(world.arrived(), [1, 2, 3]);
    assert_eq!(world.locker().holder(&key()).await.unwrap(), None);
}

async fn a_flush_sends_nothing_where_the_lease_is_held(world: World) {
    let exporter = world.enabled().await;
    world.append(3).await;
    let lease = world.locker().wait_until_obtained(&key()).await.unwrap();

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 0);
    let flushed = exporter.flush(None).await.unwrap();

    assert!(matches!(&flushed, Flushed::Held(holder) if holder.token == lease.token()));
    assert_eq!(world.sink.requests(), [0; 0]);
    assert!(lease.is_held());
}

async fn a_flush_sends_nothing_where_export_is_disabled(world: World) {
    let exporter = world.exporter();
    world.append(3).await;

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 0);

    assert_eq!(world.sink.requests(), [0; 0]);
}

async fn pending_events_are_counted_by_anybody(world: World) {
    let exporter = world.exporter();
    assert_eq!(exporter.num_pending_events().await.unwrap(), 0);
    let _lease = world.locker().wait_until_obtained(&key()).await.unwrap();

    world.append(7).await;

    assert_eq!(exporter.num_pending_events().await.unwrap(), 7);
}

async fn while_a_job_waits_nobody_else_exports(world: World) {
    let (exporter, other) = (world.enabled().await, world.exporter());
    world.append(1).await;
    let first = exporter.schedule_job().await.unwrap();
    assert!(matches!(first, Scheduled::Enqueued(_)), "{first:?}");

    let second = other.schedule_job().await.unwrap();

    assert!(matches!(second, Scheduled::Held(_)), "{second:?}");
    assert_eq!(other.flush_pending_events(None).await.unwrap(), 0);
    assert_eq!(world.queue().count().await.unwrap(), 1);
}

async fn a_job_that_is_not_run_frees_its_own_lease_alone(world: World) {
    let exporter = world.enabled().await;
    let hand_over = async || {
        let lease = world.locker().wait_until_obtained(&key()).await.unwrap();
        match lease.hand_over(Ttl::clamped(Duration::from_secs(5))).await.unwrap() {
            lease_core::Handed::Over(handed) => handed,
            lost @ lease_core::Handed::AlreadyLost(_) => panic!("{lost:?}"),
        }
    };
    let handed = hand_over().await;

    let first = exporter.job_finished(handed.clone()).await.unwrap();
    assert_eq!(first, JobFinished::Freed);

    let successor = world.locker().wait_until_obtained(&key()).await.unwrap();
    let second = exporter.job_finished(handed).await.unwrap();
    assert_eq!(second, JobFinished::NotOurs);
    let attempt = world.locker().obtain(&key()).await.unwrap();
    assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");
    assert!(successor.is_held());
}

/// A queue that does not answer; whether it has the job is not known.
#[derive(Debug)]
struct Unreachable(Option<Arc<dyn JobQueue>>);

#[async_trait]
impl JobQueue for Unreachable {
    async fn enqueue(&self, body: &str) -> Result<JobId, ServiceError> {
        self.replace(body).await
    }

    async fn replace(&self, body: &str) -> Result<JobId, ServiceError> {
        if let Some(queue) = &self.0 {
            queue.replace(body).await?;
        }
        Err(ServiceError::new("job queue", ServiceErrorKind::Unavailable, "as the test says"))
    }

    async fn take(&self, _patience: Duration) -> Result<Option<Delivery>, ServiceError> {
        Ok(None)
    }

    async fn keep(&self, _delivery: &Delivery) -> Result<bool, ServiceError> {
        Ok(false)
    }

    async fn finish(&self, _delivery: &Delivery) -> Result<bool, ServiceError> {
        Ok(false)
    }

    async fn give_back(&self, _delivery: &Delivery, _: Duration) -> Result<bool, ServiceError> {
        Ok(false)
    }

    async fn count(&self) -> Result<u64, ServiceError> {
        Ok(0)
    }

    fn visibility(&self) -> Duration {
        Duration::from_secs(1)
    }
}

async fn what_cannot_be_enqueued_frees_the_lease_at_once(world: World) {
    let worker = world.enabled().await;
    world.append(2).await;
    let sink = Arc::new(world.sink.clone());
    for has_it in [None, Some(world.queue())] {
        let queue = Arc::new(Unreachable(has_it));
        let exporter = world.exporter_of(queue, world.buffer(), Arc::clone(&sink) as _);

        let error = exporter.schedule_job().await.unwrap_err();

        assert!(matches!(&error, ExportError::Service(queue) if queue.is_retryable()), "{error:?}");
        assert_eq!(world.locker().holder(&key()).await.unwrap(), None);
    }

    // It was in the queue after all: its worker obtains the lease anew.
    let worked = worker.run_next_job(Duration::ZERO).await.unwrap();
    assert!(matches!(&worked, Worked::Done(_, exported) if exported.sent == 2), "{worked:?}");
}
