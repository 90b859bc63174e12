//! Measures the backlog of a buffer that does not answer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::FencingToken;
use lease_export::{
    Appended, BufferState, Capacity, Event, EventBuffer, ExportMetrics, Fenced, Intake, Pending,
    Position, ReadLimit, ServiceError,
};
use tokio::time::timeout;

use crate::world::{World, everywhere};

everywhere! {
    export_answers_while_backlog_is_not_measured
}

/// Never answers when it is asked for the age of the oldest event.
#[derive(Debug)]
struct Silent(Arc<dyn EventBuffer>);

#[async_trait]
impl EventBuffer for Silent {
    async fn append(&self, events: &[Event]) -> Result<Appended, ServiceError> {
        self.0.append(events).await
    }

    async fn read(
        &self,
        token: FencingToken,
        after: Option<Position>,
        most: ReadLimit,
    ) -> Result<Fenced<Vec<Pending>>, ServiceError> {
        self.0.read(token, after, most).await
    }

    async fn remove(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError> {
        self.0.remove(token, positions).await
    }

    async fn set_aside(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError> {
        self.0.set_aside(token, positions).await
    }

    async fn clear_aside(&self) -> Result<u64, ServiceError> {
        self.0.clear_aside().await
    }

    async fn pending(&self) -> Result<u64, ServiceError> {
        self.0.pending().await
    }

    async fn oldest_age(&self) -> Result<Option<Duration>, ServiceError> {
        std::future::pending().await
    }

    async fn state(&self) -> Result<BufferState, ServiceError> {
        self.0.state().await
    }

    async fn set_intake(&self, intake: Intake) -> Result<Intake, ServiceError> {
        self.0.set_intake(intake).await
    }

    async fn resume_intake(&self) -> Result<bool, ServiceError> {
        self.0.resume_intake().await
    }

    async fn clear(&self) -> Result<Option<u64>, ServiceError> {
        self.0.clear().await
    }

    fn capacity(&self) -> Capacity {
        self.0.capacity()
    }
}

#[derive(Debug)]
struct Uncounted;

impl ExportMetrics for Uncounted {}

async fn export_answers_while_backlog_is_not_measured(world: World) {
    let buffer = Arc::new(Silent(world.buffer()));
    let exporter = world.exporter_of(world.queue(), buffer, Arc::new(world.sink.clone()));
    let exporter = exporter.with_metrics(Arc::new(Uncounted));
    exporter.enable().await.unwrap();
    world.append(3).await;

    let flushed = timeout(Duration::from_secs(60), exporter.flush_pending_events(None)).await;

    assert_eq!(flushed.unwrap().unwrap(), 3);
}
