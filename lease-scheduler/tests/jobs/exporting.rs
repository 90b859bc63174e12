//! Jobs that run an exporter.

use std::error::Error;
use std::sync::Arc;

use lease_core::Locker;
use lease_scheduler::export::{
    Capacity, ExportError, Exporter, Limits, MemoryBuffer, MemorySink, Parts,
};
use lease_scheduler::queue::MemoryQueue;
use lease_scheduler::{Job, Outcome, TableSwitch};

use crate::world::{World, key, secs};

fn exporter(world: &World, name: &str) -> Exporter {
    let locker = Locker::new(world.store.clone());
    let switch = TableSwitch::new(key("switch"), &locker, world.store.clone()).on_at_first();
    Exporter::new(
        locker,
        key(name),
        Parts {
            switch: Arc::new(switch),
            queue: Arc::new(MemoryQueue::new(secs(60))),
            buffer: Arc::new(MemoryBuffer::new(Capacity::default())),
            sink: Arc::new(MemorySink::new(Limits::KINESIS)),
        },
    )
}

/// A job `export` that runs `exporter` once by each of its ways.
async fn outcome(world: &World, exporter: Exporter) -> Outcome {
    let job = Job::new(key("export"), move |_job| {
        let exporter = exporter.clone();
        async move {
            let flushed = exporter.flush(None).await;
            let scheduled = exporter.schedule_job().await;
            assert_eq!(flushed.is_ok(), scheduled.is_ok());
            drop(scheduled?);
            Ok(())
        }
    });
    world.start("a", [job]).handle.run_now("export").await.unwrap().outcome
}

#[tokio::test(start_paused = true)]
async fn exporter_with_the_key_of_its_own_job_is_refused() {
    let world = World::new();

    let outcome = outcome(&world, exporter(&world, "export")).await;

    let Outcome::Failed(error) = outcome else { panic!("{outcome:?}") };
    let error: &(dyn Error + 'static) = &*error;
    let refused = error.downcast_ref::<ExportError>().unwrap();
    assert!(matches!(refused, ExportError::KeyOfJob { .. }), "{refused:?}");
    assert!(!refused.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn exporter_with_a_key_of_its_own_runs_in_a_job() {
    let world = World::new();

    let outcome = outcome(&world, exporter(&world, "orders")).await;

    assert!(matches!(outcome, Outcome::Finished), "{outcome:?}");
}
