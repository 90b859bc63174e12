//! Compares the records that the workers of `shards` processed with the records of the stream.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lease_kinesis::{RawRecord, Record};

/// All processed records, with repetitions. Clones share one set.
#[derive(Debug, Clone, Default)]
pub struct Deliveries {
    by_key: Arc<Mutex<ByKey>>,
}

type ByKey = BTreeMap<Arc<str>, Delivered>;

#[derive(Debug, Default)]
struct Delivered {
    /// Each record once, in the order of its first delivery.
    first: Vec<Vec<u8>>,
    known: BTreeSet<Vec<u8>>,
    replayed: usize,
}

/// The result of the comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// The number of records in the stream.
    pub put: usize,
    /// The number of records that no worker processed.
    pub missing: usize,
    /// The number of partition keys whose records were processed out of order.
    pub out_of_order: usize,
    /// The number of repeated deliveries.
    pub replayed: usize,
}

impl Deliveries {
    /// Adds a processed record. Each record of the stream has different data.
    pub fn add(&self, record: &Record) {
        let mut by_key = self.lock();
        let delivered = by_key.entry(Arc::clone(&record.partition_key)).or_default();
        if delivered.known.insert(record.data.to_vec()) {
            delivered.first.push(record.data.to_vec());
        } else {
            delivered.replayed += 1;
        }
    }

    /// Returns the number of processed records, without repetitions.
    pub fn count(&self) -> usize {
        self.lock().values().map(|delivered| delivered.first.len()).sum()
    }

    /// Returns the number of repeated deliveries.
    pub fn replayed(&self) -> usize {
        self.lock().values().map(|delivered| delivered.replayed).sum()
    }

    /// Compares the processed records with `put`, the stream's records by partition key.
    pub fn verdict(&self, put: &BTreeMap<Arc<str>, Vec<RawRecord>>) -> Verdict {
        let mut verdict = Verdict { replayed: self.replayed(), ..Verdict::default() };
        let (none, by_key) = (Delivered::default(), self.lock());
        for (key, put) in put {
            let delivered = by_key.get(key).unwrap_or(&none);
            let known: Vec<_> =
                put.iter().filter(|record| delivered.known.contains(&*record.data)).collect();
            verdict.put += put.len();
            verdict.missing += put.len() - known.len();
            let in_order = known.iter().map(|record| &*record.data).eq(&delivered.first);
            verdict.out_of_order += usize::from(!in_order);
        }
        verdict
    }

    fn lock(&self) -> MutexGuard<'_, ByKey> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Verdict {
    /// Returns true if every record was processed, in order.
    pub fn is_right(self) -> bool {
        self.missing == 0 && self.out_of_order == 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { put, missing, out_of_order, replayed } = self;
        let verdict =
            if self.is_right() { "every record was processed, in order" } else { "FAILED" };
        write!(
            f,
            "verdict: {verdict}; records: {put}, missing: {missing}, partition keys out of order: \
             {out_of_order}, replayed: {replayed}"
        )
    }
}

#[cfg(test)]
mod tests {
    use lease_kinesis::{RecordNumber, SimStream};

    use super::*;

    fn verdict_on(processed: &[usize]) -> Verdict {
        let (stream, deliveries) = (SimStream::new(1), Deliveries::default());
        let put =
            stream.put_all((0..4).map(|index| (format!("{}", index % 2), format!("{index}"))));
        for index in processed {
            let RawRecord { sequence, partition_key, data, .. } = put[*index].record.clone();
            let number = RecordNumber { sequence, sub_sequence: 0 };
            deliveries.add(&Record::new(number, partition_key, data));
        }
        deliveries.verdict(&stream.put_by_partition_key())
    }

    #[tokio::test(start_paused = true)]
    async fn records_of_two_customers_may_be_reordered() {
        let verdict = verdict_on(&[1, 3, 0, 2]);

        assert_eq!(verdict, Verdict { put: 4, ..Verdict::default() });
        assert!(verdict.is_right());
    }

    #[tokio::test(start_paused = true)]
    async fn replay_is_counted_and_allowed() {
        let verdict = verdict_on(&[0, 1, 2, 0, 2, 3]);

        assert_eq!(verdict, Verdict { put: 4, replayed: 2, ..Verdict::default() });
        assert!(verdict.is_right());
    }

    #[tokio::test(start_paused = true)]
    async fn missing_or_unordered_records_fail() {
        for (processed, missing, out_of_order) in [(&[0, 1, 3][..], 1, 0), (&[2, 0, 1, 3], 0, 1)] {
            let verdict = verdict_on(processed);

            assert_eq!((verdict.missing, verdict.out_of_order), (missing, out_of_order));
            assert!(!verdict.is_right());
        }
    }
}
