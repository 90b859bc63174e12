//! The conditions under which an exporter exports.

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
    enable_and_disable_apply_to_all_processes
    job_is_enqueued_if_lease_is_free
    no_job_is_enqueued_if_lease_is_held
    no_job_is_enqueued_if_export_is_disabled
    flush_returns_number_of_sent_events
    flush_sends_nothing_if_lease_is_held
    flush_sends_nothing_if_export_is_disabled
    pending_events_are_counted_without_lease
    queued_job_blocks_other_exports
    finished_job_releases_only_its_own_lease
    failed_enqueue_releases_lease_at_once
}

async fn enable_and_disable_apply_to_all_processes(world: World) {
    let (exporter, other) = (world.exporter(), world.exporter());
    assert!(!other.is_enabled().await.unwrap());

    exporter.enable().await.unwrap();
    assert!(other.is_enabled().await.unwrap());

    exporter.disable().await.unwrap();
    assert!(!other.is_enabled().await.unwrap());
}

async fn job_is_enqueued_if_lease_is_free(world: World) {
    let exporter = world.enabled().await;

    let scheduled = exporter.schedule_job().await.unwrap();

    assert!(matches!(scheduled, Scheduled::Enqueued(_)), "{scheduled:?}");
    assert_eq!(world.queue().count().await.unwrap(), 1);
}

async fn no_job_is_enqueued_if_lease_is_held(world: World) {
    let exporter = world.enabled().await;
    let _lease = world.locker().wait_until_obtained(&key()).await.unwrap();

    let scheduled = exporter.schedule_job().await.unwrap();

    assert!(matches!(scheduled, Scheduled::Held(_)), "{scheduled:?}");
    assert_eq!(world.queue().count().await.unwrap(), 0);
}

async fn no_job_is_enqueued_if_export_is_disabled(world: World) {
    let scheduled = world.exporter().schedule_job().await.unwrap();

    assert_eq!(scheduled, Scheduled::Disabled);
    assert_eq!(world.queue().count().await.unwrap(), 0);
    assert_eq!(world.locker().holder(&key()).await.unwrap(), None);
}

async fn flush_returns_number_of_sent_events(world: World) {
    let exporter = world.enabled().await;
    world.append(3).await;

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 3);

    assert_eq!(world.arrived(), [1, 2, 3]);
    assert_eq!(world.locker().holder(&key()).await.unwrap(), None);
}

async fn flush_sends_nothing_if_lease_is_held(world: World) {
    let exporter = world.enabled().await;
    world.append(3).await;
    let lease = world.locker().wait_until_obtained(&key()).await.unwrap();

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 0);
    let flushed = exporter.flush(None).await.unwrap();

    assert!(matches!(&flushed, Flushed::Held(holder) if holder.holds(lease.grant())));
    assert_eq!(world.sink.requests(), [0; 0]);
    assert!(lease.is_held());
}

async fn flush_sends_nothing_if_export_is_disabled(world: World) {
    let exporter = world.exporter();
    world.append(3).await;

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 0);

    assert_eq!(world.sink.requests(), [0; 0]);
}

async fn pending_events_are_counted_without_lease(world: World) {
    let exporter = world.exporter();
    assert_eq!(exporter.num_pending_events().await.unwrap(), 0);
    let _lease = world.locker().wait_until_obtained(&key()).await.unwrap();

    world.append(7).await;

    assert_eq!(exporter.num_pending_events().await.unwrap(), 7);
}

async fn queued_job_blocks_other_exports(world: World) {
    let (exporter, other) = (world.enabled().await, world.exporter());
    world.append(1).await;
    let first = exporter.schedule_job().await.unwrap();
    assert!(matches!(first, Scheduled::Enqueued(_)), "{first:?}");

    let second = other.schedule_job().await.unwrap();

    assert!(matches!(second, Scheduled::Held(_)), "{second:?}");
    assert_eq!(other.flush_pending_events(None).await.unwrap(), 0);
    assert_eq!(world.queue().count().await.unwrap(), 1);
}

async fn finished_job_releases_only_its_own_lease(world: World) {
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

/// The queue may have the job although the enqueue fails.
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
        Err(ServiceError::new("job queue", ServiceErrorKind::Unavailable, "injected fault"))
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

async fn failed_enqueue_releases_lease_at_once(world: World) {
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

    // The queue has the job after all. Its worker obtains the lease anew.
    let worked = worker.run_next_job(Duration::ZERO).await.unwrap();
    assert!(matches!(&worked, Worked::Done(_, exported) if exported.sent == 2), "{worked:?}");
}
