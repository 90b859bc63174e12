//! Writes documents of CloudWatch's embedded metric format, with the names and dimensions of KCL.
//!
//! The [format](https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html)
//! allows 100 values of a metric in a document. The [names of
//! KCL](https://docs.aws.amazon.com/streams/latest/dev/monitoring-with-kcl.html) are those of alarms on KCL.

use std::time::Duration;

use lease_kinesis::Planned;
use serde_json::{Map, Value, json};

pub(super) struct Documents<'a> {
    pub(super) namespace: &'a str,
    /// The dimensions that the user has added.
    pub(super) dimensions: &'a [(String, String)],
    pub(super) timestamp: u64,
}

/// The values of one shard since the last print.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) expired: u64,
    pub(super) behind: Option<Duration>,
    pub(super) process: Calls,
    pub(super) checkpoint: Calls,
}

/// The values of the worker.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    pub(super) held: u64,
    /// Shards that were lost since the last print.
    pub(super) lost: u64,
    /// Shards that were obtained since the last print.
    pub(super) taken: u64,
    pub(super) plan: Option<Planned>,
}

/// Times of calls, and whether the calls succeeded.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<(Duration, bool)>);

impl Calls {
    /// Memory stays bounded while no one reads stdout.
    pub(super) fn push(&mut self, took: Duration, is_ok: bool) {
        if self.0.len() < MOST_CALLS {
            self.0.push((took, is_ok));
        }
    }
}

impl Fleet {
    pub(super) fn clear(&mut self) {
        (self.lost, self.taken) = (0, 0);
    }
}

impl Documents<'_> {
    pub(super) fn shard(&self, lines: &mut String, id: &str, shard: &Shard) {
        let of = [("Operation", "ProcessTask"), ("ShardId", id)];
        let mut first = vec![
            ("RecordsProcessed", "Count", json!(shard.records)),
            ("DataBytesProcessed", "Bytes", json!(shard.bytes)),
            ("ExpiredIterator", "Count", json!(shard.expired)),
        ];
        if let Some(behind) = shard.behind {
            first.push(("MillisBehindLatest", "Milliseconds", json!(millis(behind))));
        }
        self.line(lines, &of, &first);
        for calls in shard.process.0.chunks(MOST_VALUES) {
            let names =
                ["RecordProcessor.processRecords.Time", "RecordProcessor.processRecords.Success"];
            self.line(lines, &of, &timed(names, calls));
        }
        for calls in shard.checkpoint.0.chunks(MOST_VALUES) {
            self.line(lines, &of, &timed(["UpdateLease.Time", "UpdateLease.Success"], calls));
        }
    }

    pub(super) fn fleet(&self, lines: &mut String, worker: &str, fleet: &Fleet) {
        let of = [("Operation", "RenewAllLeases"), ("WorkerIdentifier", worker)];
        let leases = [
            ("CurrentLeases", "Count", json!(fleet.held)),
            ("LostLeases", "Count", json!(fleet.lost)),
        ];
        self.line(lines, &of, &leases);
        let of = [("Operation", "TakeLeases"), ("WorkerIdentifier", worker)];
        let mut taken = vec![("TakeLease.Success", "Count", json!(fleet.taken))];
        if let Some(plan) = &fleet.plan {
            let wanted = u64::try_from(plan.wanted).unwrap_or(u64::MAX);
            taken.extend([
                ("NeededLeases", "Count", json!(wanted.saturating_sub(fleet.held))),
                ("NumWorkers", "Count", json!(plan.workers)),
                ("TotalLeases", "Count", json!(plan.shards)),
            ]);
        }
        self.line(lines, &of, &taken);
    }

    fn line(
        &self,
        lines: &mut String,
        dimensions: &[(&str, &str)],
        metrics: &[(&str, &str, Value)],
    ) {
        let own = dimensions.iter().copied();
        let added = self.dimensions.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let dimensions: Vec<_> = own.chain(added).collect();
        let names: Vec<_> = dimensions.iter().map(|(name, _)| *name).collect();
        let units: Vec<_> =
            metrics.iter().map(|(name, unit, _)| json!({ "Name": name, "Unit": unit })).collect();
        let mut document = Map::new();
        document.insert(
            "_aws".to_owned(),
            json!({
                "Timestamp": self.timestamp,
                "CloudWatchMetrics": [
                    { "Namespace": self.namespace, "Dimensions": [names], "Metrics": units }
                ],
            }),
        );
        for (name, value) in dimensions {
            document.insert(name.to_owned(), json!(value));
        }
        for (name, _, value) in metrics {
            document.insert((*name).to_owned(), value.clone());
        }
        lines.push_str(&Value::Object(document).to_string());
        lines.push('\n');
    }
}

fn timed(
    names: [&'static str; 2],
    calls: &[(Duration, bool)],
) -> [(&'static str, &'static str, Value); 2] {
    let times: Vec<_> = calls.iter().map(|(took, _)| took.as_secs_f64() * 1000.0).collect();
    let successes: Vec<_> = calls.iter().map(|(_, is_ok)| u8::from(*is_ok)).collect();
    let [time, success] = names;
    [(time, "Milliseconds", json!(times)), (success, "Count", json!(successes))]
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The names of all metrics. A document has metrics and dimensions side by side.
pub(super) const METRICS: [&str; 14] = [
    "CurrentLeases",
    "DataBytesProcessed",
    "ExpiredIterator",
    "LostLeases",
    "MillisBehindLatest",
    "NeededLeases",
    "NumWorkers",
    "RecordProcessor.processRecords.Success",
    "RecordProcessor.processRecords.Time",
    "RecordsProcessed",
    "TakeLease.Success",
    "TotalLeases",
    "UpdateLease.Success",
    "UpdateLease.Time",
];

const MOST_VALUES: usize = 100;

/// KCL fetches each shard five times a second, so this is the number of batches of several minutes.
const MOST_CALLS: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(lines: &str) -> Vec<Value> {
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    const OWN: Documents<'_> = Documents { namespace: "shop", dimensions: &[], timestamp: 7 };

    #[test]
    fn document_names_each_value_with_unit_and_dimensions() {
        let dimensions = [("Stage".to_owned(), "test".to_owned())];
        let documents_of = Documents { dimensions: &dimensions, ..OWN };
        let mut lines = String::new();
        let behind = Some(Duration::from_millis(1500));
        let shard = Shard { records: 3, bytes: 30, behind, ..Shard::default() };

        documents_of.shard(&mut lines, "shardId-0", &shard);

        let expected = json!({
            "_aws": {
                "Timestamp": 7,
                "CloudWatchMetrics": [{
                    "Namespace": "shop",
                    "Dimensions": [["Operation", "ShardId", "Stage"]],
                    "Metrics": [
                        { "Name": "RecordsProcessed", "Unit": "Count" },
                        { "Name": "DataBytesProcessed", "Unit": "Bytes" },
                        { "Name": "ExpiredIterator", "Unit": "Count" },
                        { "Name": "MillisBehindLatest", "Unit": "Milliseconds" },
                    ],
                }],
            },
            "Operation": "ProcessTask", "ShardId": "shardId-0", "Stage": "test",
            "RecordsProcessed": 3, "DataBytesProcessed": 30, "ExpiredIterator": 0,
            "MillisBehindLatest": 1500,
        });
        assert_eq!(documents(&lines), [expected]);
    }

    #[test]
    fn document_has_at_most_a_hundred_values_of_a_metric() {
        let mut shard = Shard::default();
        for number in 0..250 {
            shard.checkpoint.push(Duration::from_millis(number), number != 0);
        }
        let mut lines = String::new();

        OWN.shard(&mut lines, "shardId-0", &shard);

        let documents = documents(&lines);
        let values =
            |name: &'static str| documents.iter().filter_map(move |one| one.get(name)?.as_array());
        let lengths: Vec<_> = values("UpdateLease.Time").map(Vec::len).collect();
        assert_eq!(lengths, [100, 100, 50]);
        let successes = values("UpdateLease.Success").flatten().filter(|value| **value == json!(1));
        assert_eq!(successes.count(), 249);
    }

    #[test]
    fn memory_of_unread_values_is_bounded() {
        let mut calls = Calls::default();

        (0..10 * MOST_CALLS).for_each(|_| calls.push(Duration::ZERO, true));

        assert_eq!(calls.0.len(), MOST_CALLS);
    }
}
