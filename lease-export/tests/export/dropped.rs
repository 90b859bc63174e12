//! Drops an export at each of its awaits, together with its lease. Another export follows.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::FencingToken;
use lease_export::{
    Appended, BufferState, Capacity, Event, EventBuffer, Fenced, Intake, Limits, MemorySink,
    Pending, Position, Put, ReadLimit, Record, ServiceError, Sink,
};

use crate::world::{World, everywhere};

everywhere! {
    export_dropped_at_any_step_loses_nothing
}

/// Yields before and after each call, so that a test can drop the export there.
#[derive(Debug)]
struct Stepped<T>(T);

async fn step<T>(call: impl Future<Output = T>) -> T {
    tokio::task::yield_now().await;
    let answer = call.await;
    tokio::task::yield_now().await;
    answer
}

#[async_trait]
impl EventBuffer for Stepped<Arc<dyn EventBuffer>> {
    async fn append(&self, events: &[Event]) -> Result<Appended, ServiceError> {
        self.0.append(events).await
    }

    async fn read(
        &self,
        token: FencingToken,
        after: Option<Position>,
        most: ReadLimit,
    ) -> Result<Fenced<Vec<Pending>>, ServiceError> {
        step(self.0.read(token, after, most)).await
    }

    async fn remove(
        &self,
        token: FencingToken,
        positions: &[Position],
    ) -> Result<Fenced<u64>, ServiceError> {
        step(self.0.remove(token, positions)).await
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
        step(self.0.pending()).await
    }

    async fn oldest_age(&self) -> Result<Option<Duration>, ServiceError> {
        step(self.0.oldest_age()).await
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

#[async_trait]
impl Sink for Stepped<MemorySink> {
    fn limits(&self) -> Limits {
        self.0.limits()
    }

    async fn put(&self, token: FencingToken, records: &[Record]) -> Result<Vec<Put>, ServiceError> {
        step(self.0.put(token, records)).await
    }
}

async fn dropped_after<F: Future>(work: F, polls: usize) -> Option<F::Output> {
    let mut work = pin!(work);
    for _ in 0..polls {
        if let Poll::Ready(output) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(output);
        }
        // Runs the tasks that the future waits for.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    None
}

async fn export_dropped_at_any_step_loses_nothing(world: World) {
    world.enabled().await;
    let limits = Limits::FIREHOSE.with_events_per_record(2).unwrap();
    let world = world.with_limits(limits.with_records_per_batch(2).unwrap());
    let sink = Arc::new(Stepped(world.sink.clone()));
    let buffer = Arc::new(Stepped(world.buffer()));
    let (mut sent, mut steps) = (0, 0);
    for polls in 1.. {
        let numbers: Vec<_> = (sent + 1..=sent + 10).collect();
        sent += 10;
        let events: Vec<_> = numbers.iter().copied().map(crate::world::event).collect();
        let kept = world.buffer().append(&events).await.unwrap();
        assert_eq!(kept, Appended::Kept { dropped: 0 });
        let exporter =
            world.exporter_of(world.queue(), Arc::clone(&buffer) as _, Arc::clone(&sink) as _);

        let ended = dropped_after(Box::pin(exporter.flush(None)), polls).await;

        drop(exporter);
        let lease = world.locker().wait_until_obtained(&crate::world::key()).await.unwrap();
        lease.release().await.unwrap();
        let successor =
            world.exporter_of(world.queue(), Arc::clone(&buffer) as _, Arc::clone(&sink) as _);
        let pending = successor.num_pending_events().await.unwrap();
        assert_eq!(successor.flush_pending_events(None).await.unwrap(), pending);
        assert_eq!(successor.num_pending_events().await.unwrap(), 0);
        let arrived: BTreeSet<_> = world.arrived().into_iter().collect();
        assert_eq!(arrived, (1..=sent).collect(), "dropped after {polls} polls");
        steps = polls;
        if ended.is_some() {
            break;
        }
    }
    assert!(steps > 15, "{steps} steps");
    assert!(world.sink.taken().is_sorted_by_key(|(token, _)| *token));
}
