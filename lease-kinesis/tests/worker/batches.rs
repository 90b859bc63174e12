//! A consumer that forwards messages in one batch per tag, and retries single messages. The
//! consumer checkpoints all records before the oldest unsent message.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_kinesis::{
    Batch, Checkpointer, Outcome, ProcessorError, RecordNumber, RecordProcessor, ShardContext,
    SimStream,
};
use tokio::time::sleep;

use crate::setting::{IN_THE_END, SOON, Table, checkpoint, table, until, worker};

/// A tag, and the messages that the sink accepted in one batch.
type Sent = (char, Vec<String>);

/// Rejects each message as often as `rejections` says.
#[derive(Clone, Default)]
struct Sink {
    batches: Arc<Mutex<Vec<Sent>>>,
    rejections: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Sink {
    fn send(&self, tag: char, messages: &[String]) -> Vec<String> {
        let mut rejections = self.rejections.lock().unwrap();
        let is_rejected = |message: &&String| {
            let left = rejections.get_mut(message.as_str());
            left.is_some_and(|left| std::mem::replace(left, left.saturating_sub(1)) > 0)
        };
        let (rejected, sent): (Vec<_>, Vec<_>) = messages.iter().partition(is_rejected);
        self.batches.lock().unwrap().push((tag, sent.into_iter().cloned().collect()));
        rejected.into_iter().cloned().collect()
    }

    fn sent(&self, tag: char) -> Vec<String> {
        let batches = self.batches.lock().unwrap();
        let of_tag = batches.iter().filter(|(of, _)| *of == tag);
        of_tag.map(|(_, messages)| messages.join(" ")).collect()
    }
}

/// `ab:text` has the tags a and b.
fn read(text: &str) -> (Vec<char>, String) {
    match text.split_once(':') {
        Some((tags, message)) => (tags.chars().collect(), message.to_owned()),
        None => (Vec::new(), text.to_owned()),
    }
}

struct Sender {
    sink: Sink,
    unsent: BTreeMap<char, Vec<(RecordNumber, String)>>,
    delivered: BTreeSet<RecordNumber>,
}

impl Sender {
    fn new(sink: &Sink) -> Self {
        Self { sink: sink.clone(), unsent: BTreeMap::new(), delivered: BTreeSet::new() }
    }

    async fn send(&mut self, tag: char) {
        let unsent = self.unsent.remove(&tag).unwrap_or_default();
        let mut messages: Vec<_> = unsent.into_iter().map(|(_, message)| message).collect();
        while !messages.is_empty() {
            messages = self.sink.send(tag, &messages);
            if !messages.is_empty() {
                sleep(Duration::from_millis(100)).await;
            }
        }
    }

    async fn checkpoint(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        let unsent = self.unsent.values().flatten();
        let oldest = unsent.map(|(number, _)| number).min();
        let mut before = self.delivered.iter().rev();
        let before = before.find(|number| oldest.is_none_or(|oldest| *number < oldest)).cloned();
        if let Some(number) = before {
            checkpointer.checkpoint_at(&number).await?;
            self.delivered.retain(|delivered| *delivered > number);
        }
        Ok(())
    }
}

#[async_trait]
impl RecordProcessor for Sender {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        for record in &batch.records {
            self.delivered.insert(record.number.clone());
            let (tags, message) = read(str::from_utf8(&record.data).unwrap());
            for tag in tags {
                let unsent = self.unsent.entry(tag).or_default();
                unsent.push((record.number.clone(), message.clone()));
                if unsent.len() == 3 {
                    self.send(tag).await;
                }
            }
        }
        self.checkpoint(checkpointer).await.into()
    }

    async fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        let tags: Vec<_> = self.unsent.keys().copied().collect();
        for tag in tags {
            self.send(tag).await;
        }
        self.checkpoint(checkpointer).await
    }
}

struct Consumer {
    table: Table,
    stream: SimStream,
    sink: Sink,
}

impl Consumer {
    fn new() -> Self {
        Self { table: table(), stream: SimStream::new(1), sink: Sink::default() }
    }

    fn start(&self) -> (lease_kinesis::WorkerHandle, tokio::task::JoinHandle<()>) {
        let sink = self.sink.clone();
        let factory = move |_: &ShardContext| Sender::new(&sink);
        let worker = worker(&self.table, &self.stream, factory).with_max_records(2);
        let worker = worker.build().unwrap();
        let handle = worker.handle();
        (handle, tokio::spawn(async move { worker.run().await.unwrap() }))
    }

    fn put(&self, texts: &[&str]) {
        self.stream.put_all(texts.iter().map(|text| ("key", (*text).to_owned())));
    }

    /// Returns the index of the checkpointed record, counted from 1.
    async fn checkpointed(&self) -> usize {
        let checkpoint = checkpoint(&self.table).await;
        let put = self.stream.everything_put();
        let place = put.iter().position(|put| put.record.sequence.as_str() == checkpoint);
        place.map_or(0, |place| place + 1)
    }
}

#[tokio::test(start_paused = true)]
async fn ignored_messages_are_checkpointed() {
    let consumer = Consumer::new();
    consumer.put(&["nothing", "nothing", "nothing"]);

    let (_, _running) = consumer.start();
    sleep(SOON).await;

    assert_eq!(consumer.checkpointed().await, 3);
    assert!(consumer.sink.batches.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn messages_of_several_tags_are_sent_in_exact_batches() {
    for ignored in [false, true] {
        let consumer = Consumer::new();
        for text in ["ab:1", "a:2", "b:3", "ab:4", "c:5", "b:6", "cb:7", "c:8", "b:9"] {
            consumer.put(&[text]);
            if ignored {
                consumer.put(&["nothing"]);
            }
        }

        let (_, _running) = consumer.start();
        sleep(SOON).await;

        let sent = ['a', 'b', 'c'].map(|tag| consumer.sink.sent(tag));
        assert_eq!(sent, [vec!["1 2 4"], vec!["1 3 4", "6 7 9"], vec!["5 7 8"]]);
        assert_eq!(consumer.checkpointed().await, if ignored { 18 } else { 9 });
    }
}

#[tokio::test(start_paused = true)]
async fn checkpoint_stays_before_an_unsent_message() {
    let consumer = Consumer::new();
    let (_, running) = consumer.start();
    consumer.put(&["a:1", "a:2", "b:3", "a:4", "nothing"]);
    sleep(SOON).await;
    assert_eq!(consumer.sink.sent('a'), ["1 2 4"]);
    assert_eq!(consumer.checkpointed().await, 2, "b:3 is not sent");
    consumer.put(&["c:6", "b:7", "b:8"]);
    sleep(SOON).await;
    assert_eq!(consumer.sink.sent('b'), ["3 7 8"]);
    assert_eq!(consumer.checkpointed().await, 5, "c:6 is not sent");

    // The next worker delivers all records after the checkpoint, also the unsent message.
    running.abort();
    let (handle, running) = consumer.start();
    until("the next worker reads", IN_THE_END, || handle.status().counters.records == 3).await;
    handle.stop();
    running.await.unwrap();

    assert_eq!(consumer.sink.sent('c'), ["6"]);
    assert_eq!(consumer.checkpointed().await, 8);
}

#[tokio::test(start_paused = true)]
async fn only_rejected_message_is_sent_again() {
    let consumer = Consumer::new();
    consumer.sink.rejections.lock().unwrap().insert("2".to_owned(), 2);
    consumer.put(&["a:1", "a:2", "a:3", "a:4"]);

    let (_, _running) = consumer.start();
    sleep(SOON).await;

    assert_eq!(consumer.sink.sent('a'), ["1 3", "", "2"]);
    assert_eq!(consumer.checkpointed().await, 3, "a:4 is not sent");
}
