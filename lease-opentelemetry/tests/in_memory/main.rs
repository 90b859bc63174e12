//! Each metric through the SDK of OpenTelemetry, with its exporter in memory.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod exporters;
mod jobs;
mod keys;
mod leases;
mod names;
mod workers;

use std::collections::BTreeMap;

use opentelemetry::KeyValue;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ScopeMetrics};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};

struct Exported {
    provider: SdkMeterProvider,
    exporter: InMemoryMetricExporter,
}

impl Exported {
    fn new() -> Self {
        let exporter = InMemoryMetricExporter::default();
        let reader = PeriodicReader::builder(exporter.clone()).build();
        Self { provider: SdkMeterProvider::builder().with_reader(reader).build(), exporter }
    }

    /// The values of counters and gauges, and the counts of histograms, by `name attribute=value`.
    fn values(&self) -> BTreeMap<String, i64> {
        self.provider.force_flush().unwrap();
        let mut values = BTreeMap::new();
        let exported = self.exporter.get_finished_metrics().unwrap();
        let last = exported.last().unwrap();
        for metric in last.scope_metrics().flat_map(ScopeMetrics::metrics) {
            let mut add = |attributes: Vec<&KeyValue>, value: i64| {
                let mut all: Vec<_> =
                    attributes.iter().map(|one| format!(" {}={}", one.key, one.value)).collect();
                all.sort();
                values.insert(format!("{}{}", metric.name(), all.concat()), value);
            };
            match metric.data() {
                AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                    for point in sum.data_points() {
                        add(point.attributes().collect(), i64::try_from(point.value()).unwrap());
                    }
                }
                AggregatedMetrics::I64(MetricData::Sum(sum)) => {
                    sum.data_points()
                        .for_each(|point| add(point.attributes().collect(), point.value()));
                }
                AggregatedMetrics::F64(MetricData::Gauge(gauge)) => {
                    for point in gauge.data_points() {
                        #[expect(
                            clippy::cast_possible_truncation,
                            reason = "whole numbers, or seconds"
                        )]
                        add(point.attributes().collect(), point.value() as i64);
                    }
                }
                AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
                    for point in histogram.data_points() {
                        add(point.attributes().collect(), i64::try_from(point.count()).unwrap());
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        values
    }
}
