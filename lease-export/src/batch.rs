//! Packs events into records, and records into batches.

use std::collections::HashMap;

use crate::buffer::{Pending, Position};
use crate::event::{Event, EventId};
use crate::limits::Limits;
use crate::partition::{PartitionKey, Partitioner};

/// Packs events into batches, in order, as full as the limits allow. Sends nothing.
///
/// A record is newline-delimited JSON: one line per event, each with its line break. The packer
/// fills the current record first, then starts a new record. If the batch has no room for a new
/// record, the event starts the next batch. So a full batch has fewer unused bytes than the next
/// event takes with its line break and a partition key.
///
/// With [partition keys](Self::with_partition_key), the packer fills one record per key at a time.
///
/// # Examples
///
/// ```
/// use lease_export::{Event, Limits, Packed, Packer, Pending, Position};
/// use serde_json::json;
///
/// let mut packer = Packer::new(Limits::KINESIS);
/// for number in 1..=2 {
///     let event = Event::new(format!("event-{number}").parse()?, &json!({ "n": number }))?;
///     let packed = packer.push(Pending::new(Position::new(0, number), event));
///     assert!(matches!(packed, Packed::Kept));
/// }
/// let batch = packer.finish().unwrap();
///
/// assert_eq!(batch.records().len(), 1);
/// assert_eq!(batch.records()[0].data(), b"{\"n\":1}\n{\"n\":2}\n");
/// # Ok::<_, lease_core::InvalidInput>(())
/// ```
#[derive(Debug)]
pub struct Packer {
    limits: Limits,
    partitioner: Partitioner,
    batch: Batch,
    /// The place of the record that takes the next event of each key. Events without a key of their
    /// own share a record.
    open: HashMap<Option<PartitionKey>, usize>,
}

/// The records of one request.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    records: Vec<Record>,
    bytes: usize,
}

/// One record: lines of JSON, each with its line break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    key: PartitionKey,
    data: Vec<u8>,
    events: Vec<(Position, EventId)>,
}

/// The result of [`Packer::push`].
#[derive(Debug)]
#[must_use = "a batch that is dropped is not sent"]
#[expect(clippy::exhaustive_enums, reason = "an event fits, fits the next batch, or fits none")]
pub enum Packed {
    /// The event is in the current batch.
    Kept,
    /// The event did not fit and starts the next batch. The returned batch is full.
    Full(Batch),
    /// The event is larger than any record may be.
    TooLarge(Pending),
}

impl Packer {
    /// A packer for a sink with `limits`.
    pub fn new(limits: Limits) -> Self {
        let (partitioner, batch, open) = (Partitioner::default(), Batch::default(), HashMap::new());
        Self { limits, partitioner, batch, open }
    }

    /// Sets the partition keys, as
    /// [`Exporter::with_partition_key`](crate::Exporter::with_partition_key) does.
    #[must_use]
    pub fn with_partition_key(
        self,
        key: impl Fn(&Event) -> Option<PartitionKey> + Send + Sync + 'static,
    ) -> Self {
        self.with_partitioner(&Partitioner::new(key))
    }

    pub(crate) fn with_partitioner(mut self, partitioner: &Partitioner) -> Self {
        self.partitioner = partitioner.for_sink(self.limits);
        self
    }

    /// Adds an event.
    pub fn push(&mut self, pending: Pending) -> Packed {
        let limits = self.limits;
        let line = pending.event().line().len() + 1;
        let own = self.partitioner.own_key(pending.event());
        let id = || pending.event().id().as_str();
        let key = own.as_ref().map_or_else(id, PartitionKey::as_str);
        let alone = limits.key_bytes(key) + line;
        if alone > limits.record_bytes {
            return Packed::TooLarge(pending);
        }
        let left = limits.batch_bytes - self.batch.bytes;
        if let Some(place) = self.open.get(&own)
            && let Some(record) = self.batch.records.get_mut(*place)
            && record.events.len() < limits.events_per_record
            && limits.key_bytes(record.key.as_str()) + record.data.len() + line
                <= limits.record_bytes
            && line <= left
        {
            record.push(&pending);
            self.batch.bytes += line;
            return Packed::Kept;
        }
        let full = (self.batch.records.len() == limits.records_per_batch || alone > left)
            .then(|| self.take());
        let key = own.clone().unwrap_or_else(|| pending.event().id().clone().into());
        // A later event of this key follows in this record, so the order within the key is kept.
        self.open.insert(own, self.batch.records.len());
        self.batch.records.push(Record::of_one(key, &pending));
        self.batch.bytes += alone;
        full.map_or(Packed::Kept, Packed::Full)
    }

    /// Returns the last batch, which need not be full, or `None` if it is empty.
    pub fn finish(&mut self) -> Option<Batch> {
        Some(self.take()).filter(|batch| !batch.records.is_empty())
    }

    fn take(&mut self) -> Batch {
        self.open.clear();
        std::mem::take(&mut self.batch)
    }
}

impl Batch {
    /// The records, in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The size in bytes, as the sink counts it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.records.iter().map(|record| record.events.len()).sum()
    }

    /// Whether the batch has no event.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn into_records(self) -> Vec<Record> {
        self.records
    }
}

impl Record {
    /// The record may have any size. Returns `None` if `events` is empty.
    pub(crate) fn of_all(partitioner: &Partitioner, events: &[Pending]) -> Option<Self> {
        let (first, others) = events.split_first()?;
        let mut record = Self::of_one(partitioner.record_key(first.event()), first);
        for pending in others {
            record.push(pending);
        }
        Some(record)
    }

    fn of_one(key: PartitionKey, pending: &Pending) -> Self {
        let mut record = Self { key, data: Vec::new(), events: Vec::new() };
        record.push(pending);
        record
    }

    fn push(&mut self, pending: &Pending) {
        let event: &Event = pending.event();
        self.data.extend_from_slice(event.line().as_bytes());
        self.data.push(b'\n');
        self.events.push((pending.position(), event.id().clone()));
    }

    /// The partition key: the [own key](crate::Exporter::with_partition_key) of all events of the
    /// record, or the id of the first event. Ids differ, so their records spread over shards. A
    /// repeated record goes to the same shard.
    pub fn key(&self) -> &PartitionKey {
        &self.key
    }

    /// The lines, as bytes of UTF-8.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The ids of the record's events, in order.
    pub fn ids(&self) -> impl Iterator<Item = &EventId> {
        self.events.iter().map(|(_, id)| id)
    }

    pub(crate) fn positions(&self) -> impl Iterator<Item = Position> {
        self.events.iter().map(|(position, _)| *position)
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = Pending> {
        // The lines were valid UTF-8 before packing, so `from_utf8_lossy` replaces no character.
        let lines = self.data.split(|byte| *byte == b'\n').map(String::from_utf8_lossy);
        self.events
            .iter()
            .zip(lines)
            .map(|((position, id), line)| Pending::new(*position, Event::again(id.clone(), &line)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn event(number: u64, bytes: usize) -> Pending {
        let body = Value::String("x".repeat(bytes.saturating_sub(2)));
        let event = Event::new(format!("event-{number}").parse().unwrap(), &body).unwrap();
        Pending::new(Position::new(0, number), event)
    }

    fn pack(limits: Limits, sizes: &[usize]) -> (Vec<Batch>, Vec<Pending>) {
        pack_by(Packer::new(limits), sizes)
    }

    fn pack_by(mut packer: Packer, sizes: &[usize]) -> (Vec<Batch>, Vec<Pending>) {
        let (mut batches, mut too_large) = (Vec::new(), Vec::new());
        for (number, bytes) in (1..).zip(sizes) {
            match packer.push(event(number, *bytes)) {
                Packed::Kept => (),
                Packed::Full(batch) => batches.push(batch),
                Packed::TooLarge(pending) => too_large.push(pending),
            }
        }
        batches.extend(packer.finish());
        (batches, too_large)
    }

    fn true_bytes(limits: Limits, record: &Record) -> usize {
        limits.key_bytes(record.key().as_str()) + record.data().len()
    }

    #[test]
    fn batch_of_5_records_with_1000_events_has_5000_events() {
        let limits = Limits::FIREHOSE
            .with_events_per_record(1000)
            .and_then(|limits| limits.with_records_per_batch(5))
            .unwrap();

        let (batches, _) = pack(limits, &vec![100; 5001]);

        let lengths: Vec<_> = batches.iter().map(Batch::len).collect();
        assert_eq!(lengths, [5000, 1]);
        assert!(batches[0].records().iter().all(|record| record.ids().count() == 1000));
    }

    #[test]
    fn five_full_records_exceed_one_request() {
        let (batches, _) = pack(Limits::FIREHOSE, &[1000 * 1024 - 1; 5]);

        let counts: Vec<_> = batches.iter().map(|batch| batch.records().len()).collect();
        assert_eq!(counts, [4, 1]);
    }

    #[test]
    fn oversized_event_does_not_block_the_rest() {
        // The line break and the partition key count, too.
        let largest = Limits::KINESIS.record_bytes - 1 - "event-1".len();

        let (batches, too_large) = pack(Limits::KINESIS, &[largest, largest + 1, 10]);

        assert_eq!(too_large.len(), 1);
        assert_eq!(too_large[0].event().id().as_str(), "event-2");
        let ids: Vec<_> = batches[0].records().iter().flat_map(Record::ids).collect();
        assert_eq!(ids, ["event-1", "event-3"].map(|id| id.parse().unwrap()).each_ref());
    }

    #[test]
    fn each_event_is_one_line() {
        let mut packer = Packer::new(Limits::KINESIS);
        let body = Value::String("two\r\nlines\u{2028}".to_owned());
        let event = Event::new("a".parse().unwrap(), &body).unwrap();
        let kept = packer.push(Pending::new(Position::new(0, 1), event));
        assert!(matches!(kept, Packed::Kept));

        let batch = packer.finish().unwrap();

        let text = std::str::from_utf8(batch.records()[0].data()).unwrap();
        assert_eq!(text.lines().count(), 1);
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), body);
        assert!(text.ends_with('\n'));
    }

    /// Near the minimum, so that small cases reach each limit.
    fn limits() -> impl Strategy<Value = Limits> {
        let of = prop_oneof![Just(Limits::KINESIS), Just(Limits::FIREHOSE)];
        (of, 1..100_usize, 1..30_usize, 1024..2_000_usize, 1..8_usize).prop_map(
            |(limits, events, records, bytes, times)| {
                limits
                    .with_events_per_record(events)
                    .and_then(|limits| limits.with_records_per_batch(records))
                    .and_then(|limits| limits.with_record_bytes(bytes))
                    .and_then(|limits| limits.with_batch_bytes(bytes * times))
                    .unwrap()
            },
        )
    }

    /// The limits of each service, divided by 100 to 1,000, with the same ratio.
    fn services() -> impl Strategy<Value = Limits> {
        let of = prop_oneof![Just(Limits::KINESIS), Just(Limits::FIREHOSE)];
        (of, 100..=1000_usize).prop_map(|(limits, by)| {
            limits
                .with_record_bytes(limits.record_bytes / by)
                .and_then(|smaller| smaller.with_batch_bytes(limits.batch_bytes / by))
                .unwrap()
        })
    }

    /// Sizes of the lines of more than two batches. A line, with its line break and a key, takes at
    /// most a twentieth of a batch.
    fn lines_of_a_twentieth(limits: Limits) -> impl Strategy<Value = Vec<usize>> {
        let largest = limits.batch_bytes / 20 - 1 - "event-999".len();
        // Mostly large lines, which leave the largest gaps.
        let bytes = prop_oneof![1 => 2..=largest, 3 => largest * 9 / 10..=largest];
        prop::collection::vec(bytes, 80..110)
    }

    fn within_its_limits(limits: Limits, batch: &Batch) -> Result<(), TestCaseError> {
        let bytes: usize = batch.records().iter().map(|record| true_bytes(limits, record)).sum();
        prop_assert!(!batch.is_empty());
        prop_assert_eq!(bytes, batch.bytes());
        prop_assert!(bytes <= limits.batch_bytes);
        prop_assert!(batch.records().len() <= limits.records_per_batch);
        for record in batch.records() {
            prop_assert!(true_bytes(limits, record) <= limits.record_bytes);
            prop_assert!(record.events.len() <= limits.events_per_record);
            let lines = record.data().split_inclusive(|byte| *byte == b'\n');
            prop_assert_eq!(lines.count(), record.events.len());
            prop_assert!(record.data().ends_with(b"\n"));
        }
        Ok(())
    }

    fn full_but_for_a_twentieth(limits: Limits, batches: &[Batch]) -> Result<(), TestCaseError> {
        prop_assert!(batches.len() > 2);
        let (_last, full) = batches.split_last().unwrap();
        for batch in full {
            within_its_limits(limits, batch)?;
            prop_assert!(batch.bytes() * 20 > limits.batch_bytes * 19);
        }
        Ok(())
    }

    #[test]
    fn batch_of_real_service_is_95_percent_full() {
        for limits in [Limits::KINESIS, Limits::FIREHOSE] {
            let largest = limits.batch_bytes / 20 - 1 - "event-999".len();
            for sizes in [vec![largest; 60], (0..70).map(|n| largest - n * 997).collect()] {
                let (batches, too_large) = pack(limits, &sizes);

                assert!(too_large.is_empty());
                full_but_for_a_twentieth(limits, &batches).unwrap();
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn batches_respect_limits_and_keep_every_event_in_order(
            limits in limits(),
            sizes in prop::collection::vec(
                prop_oneof![4 => 2..200_usize, 1 => 2..2_500_usize],
                0..120,
            ),
        ) {
            let (batches, too_large) = pack(limits, &sizes);

            for batch in &batches {
                within_its_limits(limits, batch)?;
            }
            for pending in &too_large {
                let event = pending.event();
                let alone = limits.key_bytes(event.id().as_str()) + event.line().len() + 1;
                prop_assert!(alone > limits.record_bytes);
            }
            let records = || batches.iter().flat_map(Batch::records);
            let mut sent: Vec<_> = records().flat_map(Record::positions).collect();
            prop_assert!(sent.is_sorted());
            sent.extend(too_large.iter().map(Pending::position));
            sent.sort_unstable();
            sent.dedup();
            prop_assert_eq!(sent.len(), sizes.len());
        }

        #[test]
        fn record_has_events_of_one_key_in_order(
            limits in limits(),
            sizes in prop::collection::vec(2..900_usize, 0..120),
            keys in 1..20_usize,
        ) {
            let key_of = move |id: &EventId| -> PartitionKey {
                let number: usize = id.as_str().strip_prefix("event-").unwrap().parse().unwrap();
                let key = number % keys;
                // Keys of different lengths, since the limits count them.
                PartitionKey::new(format!("key-{key}-{}", "x".repeat(key))).unwrap()
            };
            let packer = Packer::new(limits).with_partition_key(move |event| Some(key_of(event.id())));

            let (batches, too_large) = pack_by(packer, &sizes);

            prop_assert!(too_large.is_empty());
            let mut last = HashMap::new();
            for batch in &batches {
                within_its_limits(limits, batch)?;
                for record in batch.records() {
                    for (position, id) in &record.events {
                        let key = key_of(id);
                        if limits.has_keys() {
                            prop_assert_eq!(record.key(), &key);
                        }
                        let before = last.insert(key, *position);
                        prop_assert!(before.is_none_or(|before| before < *position));
                    }
                }
            }
            prop_assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), sizes.len());
        }

        #[test]
        fn batch_before_the_last_is_full(
            limits in limits(),
            sizes in prop::collection::vec(2..900_usize, 50..120),
        ) {
            let (batches, _) = pack(limits, &sizes);

            for (batch, next) in batches.iter().zip(batches.iter().skip(1)) {
                let first = &next.records()[0];
                let line = first.data().iter().position(|byte| *byte == b'\n').unwrap() + 1;
                let alone = limits.key_bytes(first.key().as_str()) + line;
                let by_bytes = batch.bytes() + alone > limits.batch_bytes;
                let by_count = batch.records().len() == limits.records_per_batch;
                prop_assert!(by_bytes || by_count);
                let last = batch.records().last().unwrap();
                prop_assert!(
                    batch.bytes() + line > limits.batch_bytes
                        || true_bytes(limits, last) + line > limits.record_bytes
                        || last.events.len() == limits.events_per_record
                );
            }
        }

        #[test]
        fn batch_of_small_events_is_95_percent_full(
            (limits, sizes) in services()
                .prop_flat_map(|limits| (Just(limits), lines_of_a_twentieth(limits))),
        ) {
            let (batches, too_large) = pack(limits, &sizes);

            prop_assert!(too_large.is_empty());
            full_but_for_a_twentieth(limits, &batches)?;
        }
    }
}
