//! A log of the processors' events, with their times.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::FencingToken;
use lease_core::conformance::WorldTime;
use lease_kinesis::{
    Batch, Checkpointed, Checkpointer, Outcome, ProcessorError, RecordNumber, RecordProcessor,
    ShardContext, ShardId, SimStream,
};

#[derive(Clone)]
pub(crate) struct Log {
    time: WorldTime,
    worker: Arc<str>,
    events: Arc<Mutex<Vec<Event>>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) worker: Arc<str>,
    pub(crate) shard: ShardId,
    pub(crate) token: FencingToken,
    pub(crate) kind: EventKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Started,
    Record {
        number: RecordNumber,
        partition_key: Arc<str>,
        text: String,
    },
    Checkpointed,
    CheckpointPending,
    CheckpointRefused(String),
    LeaseLost,
    ShardEnded,
    ShutdownRequested,
    /// The worker dropped the processor.
    Dropped,
}

impl Event {
    pub(crate) fn is_record(&self) -> bool {
        matches!(self.kind, EventKind::Record { .. })
    }
}

impl Log {
    pub(crate) fn new(time: WorldTime) -> Self {
        Self { time, worker: "".into(), events: Arc::default() }
    }

    pub(crate) fn of(&self, worker: &str) -> Self {
        Self { worker: worker.into(), ..self.clone() }
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, is: impl Fn(&Event) -> bool) -> usize {
        self.events.lock().unwrap().iter().filter(|event| is(event)).count()
    }

    pub(crate) fn distinct(&self) -> usize {
        let events = self.events.lock().unwrap();
        let records = events.iter().filter_map(|event| match &event.kind {
            EventKind::Record { number, .. } => Some((event.shard.clone(), number.clone())),
            _ => None,
        });
        records.collect::<BTreeSet<_>>().len()
    }

    pub(crate) fn replayed(&self) -> usize {
        self.count(|event| matches!(event.kind, EventKind::Record { .. })) - self.distinct()
    }

    /// For each partition key, the first deliveries must be in order.
    pub(crate) fn is_complete_and_in_order(&self, stream: &SimStream) {
        let mut seen: BTreeMap<Arc<str>, Vec<String>> = BTreeMap::new();
        for event in self.events() {
            if let EventKind::Record { partition_key, text, .. } = event.kind {
                let texts = seen.entry(partition_key).or_default();
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
        }
        for (key, put) in stream.put_by_partition_key() {
            let put: Vec<_> =
                put.iter().map(|put| String::from_utf8_lossy(&put.data).into_owned()).collect();
            assert_eq!(seen.get(&key), Some(&put), "records of {key}\n{self}");
        }
    }

    pub(crate) fn overlaps(&self) -> Vec<String> {
        let mut open: BTreeMap<ShardId, Vec<(Arc<str>, FencingToken)>> = BTreeMap::new();
        let mut overlaps = Vec::new();
        for event in self.events() {
            let readers = open.entry(event.shard.clone()).or_default();
            match event.kind {
                EventKind::Started => {
                    if let Some((other, _)) = readers.first() {
                        let (at, shard, worker) = (event.at, &event.shard, &event.worker);
                        overlaps.push(format!("{at:?}: {shard}: {worker} beside {other}"));
                    }
                    readers.push((event.worker, event.token));
                }
                EventKind::Dropped => {
                    let gone = (event.worker, event.token);
                    readers.retain(|reader| *reader != gone);
                }
                _ => (),
            }
        }
        overlaps
    }

    fn note(&self, shard: &ShardContext, kind: EventKind) {
        let (at, worker) = (self.time.now(), Arc::clone(&self.worker));
        let token = shard.token.unwrap();
        let event = Event { at, worker, shard: shard.shard.clone(), token, kind };
        self.events.lock().unwrap().push(event);
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = self.events();
        let shown: Vec<_> = events
            .iter()
            .filter(|event| {
                !matches!(event.kind, EventKind::Record { .. } | EventKind::Checkpointed)
            })
            .collect();
        for event in shown.iter().rev().take(60).rev() {
            let Event { at, worker, shard, token, kind } = event;
            writeln!(f, "{:9.3} s  {worker} {shard} {token}: {kind:?}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

pub(crate) struct LoggingProcessor {
    pub(crate) log: Log,
    pub(crate) shard: ShardContext,
    pub(crate) work: Duration,
}

impl LoggingProcessor {
    pub(crate) fn new(log: Log, shard: &ShardContext) -> Self {
        Self { log, shard: shard.clone(), work: Duration::ZERO }
    }

    pub(crate) fn slow(log: Log, shard: &ShardContext, work: Duration) -> Self {
        Self { log, shard: shard.clone(), work }
    }

    pub(crate) fn note(&self, kind: EventKind) {
        self.log.note(&self.shard, kind);
    }

    pub(crate) fn note_records(&self, batch: &Batch) {
        for record in &batch.records {
            self.note(EventKind::Record {
                number: record.number.clone(),
                partition_key: Arc::clone(&record.partition_key),
                text: String::from_utf8_lossy(&record.data).into_owned(),
            });
        }
    }

    pub(crate) async fn checkpoint(
        &self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        match checkpointer.checkpoint().await {
            Ok(Checkpointed::Pending(_)) => self.note(EventKind::CheckpointPending),
            Ok(_) => self.note(EventKind::Checkpointed),
            Err(error) => {
                self.note(EventKind::CheckpointRefused(error.to_string()));
                return Err(error.into());
            }
        }
        Ok(())
    }
}

#[async_trait]
impl RecordProcessor for LoggingProcessor {
    async fn initialize(&mut self, _shard: &ShardContext) -> Result<(), ProcessorError> {
        self.note(EventKind::Started);
        Ok(())
    }

    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        self.note_records(batch);
        tokio::time::sleep(self.work).await;
        self.checkpoint(checkpointer).await.into()
    }

    async fn lease_lost(&mut self) {
        self.note(EventKind::LeaseLost);
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        self.note(EventKind::ShardEnded);
        self.checkpoint(checkpointer).await
    }

    async fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        self.note(EventKind::ShutdownRequested);
        self.checkpoint(checkpointer).await
    }
}

impl Drop for LoggingProcessor {
    fn drop(&mut self) {
        self.log.note(&self.shard, EventKind::Dropped);
    }
}
