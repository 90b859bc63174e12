//! What the workers of `shards` were given, held against what was put.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lease_kinesis::{RawRecord, Record};

/// All records that were worked on, as often as they were. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Deliveries {
    by_key: Arc<Mutex<ByKey>>,
}

type ByKey = BTreeMap<Arc<str>, Delivered>;

#[derive(Debug, Default)]
struct Delivered {
    /// Each once, in the order in which it was given first.
    first: Vec<Vec<u8>>,
    known: BTreeSet<Vec<u8>>,
    again: usize,
}

/// What came of holding the one against the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// Records that were put.
    pub put: usize,
    /// Those of them that nobody worked on.
    pub missing: usize,
    /// Partition keys whose records were worked on in another order than they were put in.
    pub out_of_order: usize,
    /// How often a record was worked on again.
    pub replayed: usize,
}

impl Deliveries {
    /// Notes that `record` was worked on. No two records have the same data.
    pub fn note(&self, record: &Record) {
        let mut by_key = self.lock();
        let delivered = by_key.entry(Arc::clone(&record.partition_key)).or_default();
        if delivered.known.insert(record.data.to_vec()) {
            delivered.first.push(record.data.to_vec());
        } else {
            delivered.again += 1;
        }
    }

    /// How many different records were worked on.
    pub fn count(&self) -> usize {
        self.lock().values().map(|delivered| delivered.first.len()).sum()
    }

    /// How often a record was worked on again.
    pub fn replayed(&self) -> usize {
        self.lock().values().map(|delivered| delivered.again).sum()
    }

    /// Holds this against what was put, by partition key.
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
    /// Whether everything was worked on, in order.
    pub fn is_right(self) -> bool {
        self.missing == 0 && self.out_of_order == 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { put, missing, out_of_order, replayed } = self;
        let verdict =
            if self.is_right() { "every record was worked on, in order" } else { "FAILED" };
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

    /// What is said of four records, two for each of two customers, where those of these places
    /// were worked on.
    fn verdict_on(worked: &[usize]) -> Verdict {
        let (stream, deliveries) = (SimStream::new(1), Deliveries::default());
        let put =
            stream.put_all((0..4).map(|place| (format!("{}", place % 2), format!("{place}"))));
        for place in worked {
            let RawRecord { sequence, partition_key, data, .. } = put[*place].record.clone();
            let number = RecordNumber { sequence, sub_sequence: 0 };
            deliveries.note(&Record::new(number, partition_key, data));
        }
        deliveries.verdict(&stream.put_by_partition_key())
    }

    #[tokio::test(start_paused = true)]
    async fn customers_may_overtake_each_other() {
        let verdict = verdict_on(&[1, 3, 0, 2]);

        assert_eq!(verdict, Verdict { put: 4, ..Verdict::default() });
        assert!(verdict.is_right());
    }

    #[tokio::test(start_paused = true)]
    async fn a_replay_is_counted_and_right() {
        let verdict = verdict_on(&[0, 1, 2, 0, 2, 3]);

        assert_eq!(verdict, Verdict { put: 4, replayed: 2, ..Verdict::default() });
        assert!(verdict.is_right());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_or_out_of_order_is_wrong() {
        for (worked, missing, out_of_order) in [(&[0, 1, 3][..], 1, 0), (&[2, 0, 1, 3], 0, 1)] {
            let verdict = verdict_on(worked);

            assert_eq!((verdict.missing, verdict.out_of_order), (missing, out_of_order));
            assert!(!verdict.is_right());
        }
    }
}
