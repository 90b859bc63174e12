//! The series of simulated processes, scraped in paused time, and the alerts that they should fire.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use lease_metrics::names;
use lease_test_servers::tools::tool;
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::rules::Rules;

/// Scrapes its processes every [`INTERVAL`].
#[derive(Debug)]
pub(crate) struct Recording {
    rules: Rules,
    names: BTreeSet<String>,
    processes: BTreeMap<String, PrometheusHandle>,
    /// The values of each series, one for each scrape.
    series: BTreeMap<String, Vec<String>>,
    scrapes: usize,
    expected: Vec<Value>,
    fired: BTreeSet<&'static str>,
}

/// A process whose metrics are scraped.
pub(crate) struct Process(PrometheusRecorder);

/// The name of an alert, and its labels except for the severity.
pub(crate) type Alert = (&'static str, &'static str);

impl Recording {
    pub(crate) fn start() -> Self {
        let rules = Rules::read();
        Self {
            names: rules.series(),
            rules,
            processes: BTreeMap::new(),
            series: BTreeMap::new(),
            scrapes: 0,
            expected: Vec::new(),
            fired: BTreeSet::new(),
        }
    }

    /// Starts to scrape the process `instance`.
    pub(crate) fn process(&mut self, instance: &str) -> Process {
        let ratio = Matcher::Full(names::HEARTBEAT_MARGIN_RATIO.to_owned());
        let builder = PrometheusBuilder::new().set_buckets(&names::SECONDS_BUCKETS).unwrap();
        let builder = builder.set_buckets_for_metric(ratio, &names::RATIO_BUCKETS).unwrap();
        // Prometheus adds these labels to the series that it scrapes.
        let builder =
            builder.add_global_label("instance", instance).add_global_label("job", "shop");
        let recorder = builder.build_recorder();
        assert!(self.processes.insert(instance.to_owned(), recorder.handle()).is_none());
        Process(recorder)
    }

    /// The process `instance` no longer exists.
    pub(crate) fn end(&mut self, instance: &str) {
        self.processes.remove(instance).unwrap();
    }

    /// Lets the processes run, and scrapes them.
    pub(crate) async fn run_for(&mut self, length: Duration) {
        for _ in 0..length.as_secs() / INTERVAL.as_secs() {
            self.scrape();
            sleep(INTERVAL).await;
        }
    }

    /// Expects that exactly these alerts fire now.
    pub(crate) fn expect(&mut self, firing: &[Alert]) {
        self.fired.extend(firing.iter().map(|(name, _)| name));
        let sample = |(name, labels): &Alert| json!({ "labels": format!("{{alertname=\"{name}\",{labels}}}"), "value": 1 });
        let samples: Vec<_> = firing.iter().map(sample).collect();
        let query = r#"sum without (alertstate, severity) (ALERTS{alertstate="firing"})"#;
        self.expect_samples(query, &samples);
    }

    /// Expects that no alert has fired since the start.
    pub(crate) fn expect_none_so_far(&mut self) {
        let seconds = self.last_scrape();
        self.expect_samples(
            &format!(r#"max_over_time(ALERTS{{alertstate="firing"}}[{seconds}s])"#),
            &[],
        );
    }

    /// Lets `promtool` check all expectations. The alerts that were expected to fire must be `alerts`.
    pub(crate) fn check(self, alerts: &[&str]) {
        assert_eq!(self.fired, alerts.iter().copied().collect());
        let Some(promtool) = tool("promtool", &[]) else { return };
        let folder = tempfile::tempdir().unwrap();
        let test = |rules: &Rules| self.test(&promtool, folder.path(), rules);

        let output = test(&self.rules);
        assert!(output.status.success(), "{}", text(&output));

        // The negative control: another rule fires at another time.
        for alert in alerts {
            let fails = |rules: &Rules| text(&test(rules)).contains("got:");
            assert!(self.rules.mutants(alert).iter().any(fails), "{alert} may fire at other times");
        }
    }

    fn test(&self, promtool: &Path, folder: &Path, rules: &Rules) -> Output {
        let series = self
            .series
            .iter()
            .map(|(series, values)| json!({ "series": series, "values": values.join(" ") }));
        let test = json!({
            "rule_files": ["rules.yml"],
            "evaluation_interval": format!("{}s", INTERVAL.as_secs()),
            "tests": [{
                "interval": format!("{}s", INTERVAL.as_secs()),
                "input_series": series.collect::<Vec<_>>(),
                "promql_expr_test": self.expected,
            }],
        });
        std::fs::write(folder.join("rules.yml"), rules.text()).unwrap();
        // JSON is also YAML.
        std::fs::write(folder.join("test.yml"), test.to_string()).unwrap();
        let mut command = Command::new(promtool);
        command.args(["test", "rules", "test.yml"]).current_dir(folder).output().unwrap()
    }

    fn expect_samples(&mut self, query: &str, samples: &[Value]) {
        let at = format!("{}s", self.last_scrape());
        self.expected.push(json!({ "expr": query, "eval_time": at, "exp_samples": samples }));
    }

    fn last_scrape(&self) -> u64 {
        (self.scrapes as u64 - 1) * INTERVAL.as_secs()
    }

    fn scrape(&mut self) {
        for process in self.processes.values() {
            let text = process.render();
            // Values have no spaces, and the adapters write no timestamps.
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            for (series, value) in lines.filter_map(|line| line.rsplit_once(' ')) {
                let name = series.split('{').next().unwrap();
                if self.names.contains(name) {
                    let values = self.series.entry(series.to_owned()).or_default();
                    values.resize_with(self.scrapes, || "_".to_owned());
                    values.push(value.to_owned());
                }
            }
        }
        self.scrapes += 1;
        for values in self.series.values_mut().filter(|values| values.len() < self.scrapes) {
            // Prometheus marks a series that the process no longer reports as stale.
            let is_first = values.last().is_some_and(|value| value != "stale" && value != "_");
            values.push(if is_first { "stale" } else { "_" }.to_owned());
        }
    }
}

impl Process {
    /// Registers the metrics that `make` returns with the recorder of this process.
    pub(crate) fn with_metrics<T>(&self, make: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(&self.0, make)
    }
}

fn text(output: &Output) -> String {
    let mut text = String::new();
    for stream in [&output.stdout, &output.stderr] {
        write!(text, "{}", String::from_utf8_lossy(stream)).unwrap();
    }
    text
}

pub(crate) const fn mins(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

/// The interval between two scrapes.
pub(crate) const INTERVAL: Duration = Duration::from_secs(15);
