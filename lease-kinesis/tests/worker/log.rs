//! What processors were given, by whom, and when.

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

/// All that happened, in order.
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
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Begun,
    Record {
        number: RecordNumber,
        partition_key: Arc<str>,
        text: String,
    },
    Checkpointed,
    CheckpointOwed,
    CheckpointRefused(String),
    LeaseLost,
    ShardEnded,
    ShutdownRequested,
    /// The processor is no more.
    Dropped,
}

impl Event {
    pub(crate) fn is_record(&self) -> bool {
        matches!(self.what, What::Record { .. })
    }
}

impl Log {
    pub(crate) fn new(time: WorldTime) -> Self {
        Self { time, worker: "".into(), events: Arc::default() }
    }

    /// The same log, for one worker.
    pub(crate) fn of(&self, worker: &str) -> Self {
        Self { worker: worker.into(), ..self.clone() }
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, is: impl Fn(&Event) -> bool) -> usize {
        self.events.lock().unwrap().iter().filter(|event| is(event)).count()
    }

    /// How many different records were worked on.
    pub(crate) fn distinct(&self) -> usize {
        let events = self.events.lock().unwrap();
        let records = events.iter().filter_map(|event| match &event.what {
            What::Record { number, .. } => Some((event.shard.clone(), number.clone())),
            _ => None,
        });
        records.collect::<BTreeSet<_>>().len()
    }

    /// How many records were worked on again.
    pub(crate) fn replayed(&self) -> usize {
        self.count(|event| matches!(event.what, What::Record { .. })) - self.distinct()
    }

    /// Every record was worked on, and the first time in the order of its partition key.
    pub(crate) fn is_complete_and_in_order(&self, stream: &SimStream) {
        let mut seen: BTreeMap<Arc<str>, Vec<String>> = BTreeMap::new();
        for event in self.events() {
            if let What::Record { partition_key, text, .. } = event.what {
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

    /// For how long each shard had two processors at once that were given records or may have been.
    pub(crate) fn overlaps(&self) -> Vec<String> {
        let mut open: BTreeMap<ShardId, Vec<(Arc<str>, FencingToken)>> = BTreeMap::new();
        let mut overlaps = Vec::new();
        for event in self.events() {
            let readers = open.entry(event.shard.clone()).or_default();
            match event.what {
                What::Begun => {
                    if let Some((other, _)) = readers.first() {
                        let (at, shard, worker) = (event.at, &event.shard, &event.worker);
                        overlaps.push(format!("{at:?}: {shard}: {worker} beside {other}"));
                    }
                    readers.push((event.worker, event.token));
                }
                What::Dropped => {
                    let gone = (event.worker, event.token);
                    readers.retain(|reader| *reader != gone);
                }
                _ => (),
            }
        }
        overlaps
    }

    fn note(&self, shard: &ShardContext, what: What) {
        let (at, worker) = (self.time.now(), Arc::clone(&self.worker));
        let token = shard.token.unwrap();
        let event = Event { at, worker, shard: shard.shard.clone(), token, what };
        self.events.lock().unwrap().push(event);
    }
}

impl fmt::Display for Log {
    /// The last of it, without the records.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = self.events();
        let told: Vec<_> = events
            .iter()
            .filter(|event| !matches!(event.what, What::Record { .. } | What::Checkpointed))
            .collect();
        for event in told.iter().rev().take(60).rev() {
            let Event { at, worker, shard, token, what } = event;
            writeln!(f, "{:9.3} s  {worker} {shard} {token}: {what:?}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

/// A processor that notes what it is given, and checkpoints it.
pub(crate) struct Noting {
    pub(crate) log: Log,
    pub(crate) shard: ShardContext,
    /// How long a batch takes.
    pub(crate) work: Duration,
}

impl Noting {
    pub(crate) fn new(log: Log, shard: &ShardContext) -> Self {
        Self { log, shard: shard.clone(), work: Duration::ZERO }
    }

    /// One whose batches take so long.
    pub(crate) fn slow(log: Log, shard: &ShardContext, work: Duration) -> Self {
        Self { log, shard: shard.clone(), work }
    }

    pub(crate) fn note(&self, what: What) {
        self.log.note(&self.shard, what);
    }

    pub(crate) fn note_records(&self, batch: &Batch) {
        for record in &batch.records {
            self.note(What::Record {
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
            Ok(Checkpointed::Owed(_)) => self.note(What::CheckpointOwed),
            Ok(_) => self.note(What::Checkpointed),
            Err(error) => {
                self.note(What::CheckpointRefused(error.to_string()));
                return Err(error.into());
            }
        }
        Ok(())
    }
}

#[async_trait]
impl RecordProcessor for Noting {
    async fn initialize(&mut self, _shard: &ShardContext) -> Result<(), ProcessorError> {
        self.note(What::Begun);
        Ok(())
    }

    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        self.note_records(batch);
        tokio::time::sleep(self.work).await;
        self.checkpoint(checkpointer).await.into()
    }

    async fn lease_lost(&mut self) {
        self.note(What::LeaseLost);
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        self.note(What::ShardEnded);
        self.checkpoint(checkpointer).await
    }

    async fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        self.note(What::ShutdownRequested);
        self.checkpoint(checkpointer).await
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        self.log.note(&self.shard, What::Dropped);
    }
}
