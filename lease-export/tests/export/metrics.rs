//! The events that an exporter reports to metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::FencingToken;
use lease_export::{
    BufferedDeadLetters, Capacity, DeadLetters, Event, EventBuffer, ExportEnd, ExportError,
    ExportMetrics, Exporter, MemoryBuffer, ReadLimit, RejectedTo, Response, SentBatch,
    ServiceError, Unsendable, Worked,
};

use crate::world::{World, event, everywhere, run};

everywhere! {
    export_is_reported_with_its_backlog
    failed_batch_is_reported
    rejected_event_is_reported_with_its_destination
    disabled_export_reports_backlog
    dropped_export_reports_its_end
    event_that_cannot_be_removed_is_reported_as_pending
    idle_process_measures_backlog_at_most_once_a_minute
    panic_of_metrics_does_not_stop_export
}

/// Sums each event by its name.
#[derive(Debug, Default)]
struct Counted(Mutex<BTreeMap<String, u64>>);

impl Counted {
    fn count(&self, event: impl Into<String>, by: u64) {
        *self.0.lock().unwrap().entry(event.into()).or_default() += by;
    }

    fn of(&self, event: &str) -> u64 {
        self.0.lock().unwrap().get(event).copied().unwrap_or_default()
    }
}

#[deny(clippy::missing_trait_methods)]
impl ExportMetrics for Counted {
    fn began(&self) {
        self.count("began", 1);
    }

    fn ended(&self, _took: Duration, end: ExportEnd) {
        self.count(end.name(), 1);
    }

    fn batch(&self, batch: &SentBatch) {
        self.count(if batch.is_ok { "batch" } else { "failed batch" }, 1);
        self.count("sent", batch.sent);
        self.count("failed events", batch.failed);
    }

    fn rejected(&self, why: &Unsendable, to: RejectedTo) {
        self.count(format!("{} to {}", why.reason(), to.name()), 1);
    }

    fn collected(&self, events: u64, _bad: u64) {
        self.count("collected", events);
    }

    fn backlog(&self, pending: u64, oldest: Option<Duration>) {
        // The exporter catches a panic of this method, so an assertion here would fail no test.
        self.count("contradiction", u64::from((pending > 0) != oldest.is_some()));
        self.0.lock().unwrap().insert("pending".to_owned(), pending);
        self.count("backlog", 1);
    }
}

async fn counted(world: &World) -> (Exporter, Arc<Counted>) {
    let counted = Arc::new(Counted::default());
    (world.enabled().await.with_metrics(Arc::clone(&counted) as _), counted)
}

async fn export_is_reported_with_its_backlog(world: World) {
    let (exporter, counted) = counted(&world).await;
    world.append(3).await;

    exporter.measure_backlog().await.unwrap();
    assert_eq!((counted.of("pending"), counted.of("began")), (3, 0));
    assert_eq!(run(&exporter).await.sent, 3);

    assert_eq!((counted.of("began"), counted.of("done"), counted.of("failed")), (1, 1, 0));
    assert_eq!((counted.of("batch"), counted.of("sent")), (1, 3));
    assert_eq!((counted.of("pending"), counted.of("backlog")), (0, 2));
    assert_eq!(counted.of("contradiction"), 0);
}

async fn failed_batch_is_reported(world: World) {
    let (exporter, counted) = counted(&world).await;
    world.append(3).await;
    world.sink.respond([Response::Unavailable]);

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 0);

    assert_eq!((counted.of("failed batch"), counted.of("failed events")), (1, 3));
    assert_eq!((counted.of("done"), counted.of("pending")), (1, 3));
}

async fn rejected_event_is_reported_with_its_destination(world: World) {
    let limits = lease_export::Limits::FIREHOSE.with_events_per_record(1).unwrap();
    let world = world.with_limits(limits);
    let (exporter, counted) = counted(&world).await;
    let dead = Arc::new(MemoryBuffer::new(Capacity::default()));
    let exporter = exporter.with_dead_letters(Arc::new(BufferedDeadLetters::new(dead)));
    world.append(3).await;
    world.sink.refuse([event(2).id().clone()]);

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 2);

    assert_eq!(counted.of("refused to dead_letters"), 1);
    assert_eq!((counted.of("sent"), counted.of("pending")), (2, 0));
    assert_eq!(counted.of("failed events"), 0, "a refused event does not stay pending");
}

/// Another export starts while an event goes to the dead letters.
#[derive(Debug)]
struct Overtaking(Arc<dyn EventBuffer>);

#[async_trait]
impl DeadLetters for Overtaking {
    async fn dead_letter(&self, _event: &Event, _why: &Unsendable) -> Result<(), ServiceError> {
        let token = FencingToken::new(1 << 52).unwrap();
        let _read = self.0.read(token, None, ReadLimit::new(1, 1_000_000)).await?;
        Ok(())
    }
}

async fn event_that_cannot_be_removed_is_reported_as_pending(world: World) {
    let limits = lease_export::Limits::FIREHOSE.with_events_per_record(1).unwrap();
    let world = world.with_limits(limits);
    let (exporter, counted) = counted(&world).await;
    let exporter = exporter.with_dead_letters(Arc::new(Overtaking(world.buffer())));
    world.append(3).await;
    world.sink.refuse([event(2).id().clone()]);

    let overtaken = exporter.flush_pending_events(None).await.unwrap_err();

    assert!(matches!(overtaken, ExportError::Overtaken { .. }), "{overtaken:?}");
    assert_eq!(counted.of("refused to pending"), 1);
    assert_eq!(counted.of("refused to dead_letters"), 0);
}

async fn idle_process_measures_backlog_at_most_once_a_minute(world: World) {
    let (exporter, counted) = counted(&world).await;
    world.append(3).await;

    for _ in 0..3 {
        let worked = exporter.run_next_job(Duration::ZERO).await.unwrap();
        assert!(matches!(worked, Worked::Idle), "{worked:?}");
    }

    assert_eq!((counted.of("pending"), counted.of("backlog")), (3, 1));
}

async fn disabled_export_reports_backlog(world: World) {
    let (exporter, counted) = counted(&world).await;
    world.append(3).await;
    exporter.disable().await.unwrap();

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 0);

    assert_eq!((counted.of("began"), counted.of("pending")), (0, 3));
}

async fn dropped_export_reports_its_end(world: World) {
    let (exporter, counted) = counted(&world).await;
    world.append(3).await;
    world.sink.respond([Response::Hang]);

    let flushing = tokio::spawn(async move { exporter.flush_pending_events(None).await });
    let has_begun = async {
        while counted.of("began") == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), has_begun).await.unwrap();
    flushing.abort();

    assert!(flushing.await.unwrap_err().is_cancelled());
    assert_eq!((counted.of("began"), counted.of("dropped")), (1, 1));
}

#[derive(Debug)]
struct Panicking;

impl ExportMetrics for Panicking {
    fn began(&self) {
        panic!("injected by the test");
    }

    fn batch(&self, _batch: &SentBatch) {
        panic!("injected by the test");
    }

    fn ended(&self, _took: Duration, _end: ExportEnd) {
        panic!("injected by the test");
    }

    fn backlog(&self, _pending: u64, _oldest: Option<Duration>) {
        panic!("injected by the test");
    }
}

async fn panic_of_metrics_does_not_stop_export(world: World) {
    let exporter = world.enabled().await.with_metrics(Arc::new(Panicking));
    world.append(3).await;

    assert_eq!(exporter.flush_pending_events(None).await.unwrap(), 3);
}
