//! The metrics that a daemon publishes.

use std::fs;
use std::process::{Command, Output};

use lease_test_servers::port::free_port;
use lease_test_servers::prometheus::PrometheusServer;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::place::{BINARY, Place, raw};

impl Place {
    fn start_with(&self, more: &[&str]) -> Daemon {
        let file = self.properties("one").display().to_string();
        let arguments = ["-p", &file].into_iter().chain(more.iter().copied()).map(str::to_owned);
        Daemon::start(BINARY, &arguments.collect::<Vec<_>>(), self.environment())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_scrapes_daemon() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(2, command).await.with("metricsPerShard = true");
    let port = free_port();

    let daemon = place.start_with(&["--metrics", &port.to_string()]);

    daemon.until_logged("metrics served").await;
    let Some(server) = PrometheusServer::scraping(([127, 0, 0, 1], port).into()).await else {
        return;
    };
    let is = |expected: f64| move |values: &[f64]| *values == [expected];
    let some = |values: &[f64]| values.iter().any(|value| *value >= 1.0);
    server.wait_for(r#"lease_kinesis_shards_held{stream="orders"}"#, is(2.0)).await;
    let producer = place.stream.produce();
    producer.has_put_more(5).await;
    producer.end().await;
    server.wait_for(r#"lease_kinesis_records_total{stream="orders"}"#, some).await;
    server.wait_for("lease_kinesis_bytes_total", some).await;
    server.wait_for(r#"lease_kinesis_process_seconds_count{result="ok"}"#, some).await;
    server.wait_for(r#"lease_kinesis_checkpoint_seconds_count{result="ok"}"#, some).await;
    server.wait_for("lease_kinesis_shard_behind_seconds", |values| values.len() == 2).await;
    server.wait_for(r#"lease_held{group="shards"}"#, is(2.0)).await;
    server.wait_for(r#"lease_heartbeat_margin_ratio_count{group="shards"}"#, some).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn address_for_other_machines_is_logged_as_a_warning() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(1, command).await;

    let daemon = place.start_with(&["--metrics", &format!("0.0.0.0:{}", free_port())]);

    daemon.until_logged("metrics served to other machines").await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn emf_has_the_names_and_dimensions_of_kcl() {
    let Some(command) = raw() else { return };
    let place = Place::of_shards(1, command).await.with(
        "metrics = emf\nmetricsNamespace = Clicks\nmetricsDimensions = Stage=test\n\
         metricsBufferTimeMillis = 1000",
    );
    let (file, printed) = (place.properties("one"), place.folder.join("stdout"));
    let script = format!("exec {BINARY} -p {} >{}", file.display(), printed.display());
    let daemon = Daemon::start("sh", &["-c".to_owned(), script], place.environment());

    let producer = place.stream.produce();
    producer.has_put_more(5).await;
    producer.end().await;
    let lines = || -> Vec<Value> {
        let text = fs::read_to_string(&printed).unwrap_or_default();
        // The last line may be written now.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let sum =
        |name: &str| -> f64 { lines().iter().filter_map(|line| line.get(name)?.as_f64()).sum() };
    daemon.until("records are printed", || sum("RecordsProcessed") >= 5.0).await;
    let has = |name: &str| lines().iter().any(|line| line.get(name).is_some());
    for name in [
        "MillisBehindLatest",
        "DataBytesProcessed",
        "ExpiredIterator",
        "RecordProcessor.processRecords.Time",
        "RecordProcessor.processRecords.Success",
        "UpdateLease.Time",
        "UpdateLease.Success",
        "CurrentLeases",
        "LostLeases",
        "TakeLease.Success",
        "NeededLeases",
        "NumWorkers",
        "TotalLeases",
    ] {
        daemon.until(name, || has(name)).await;
    }
    daemon.stop().await;

    let lines = lines();
    let of_shard = lines.iter().find(|line| line.get("MillisBehindLatest").is_some()).unwrap();
    let directive = &of_shard["_aws"]["CloudWatchMetrics"][0];
    assert_eq!(directive["Namespace"], "Clicks");
    assert_eq!(directive["Dimensions"], json!([["Operation", "ShardId", "Stage"]]));
    assert_eq!(of_shard["Operation"], "ProcessTask");
    assert_eq!(of_shard["ShardId"], "shardId-000000000000");
    let of_worker = lines.iter().find(|line| line.get("CurrentLeases").is_some()).unwrap();
    assert_eq!(of_worker["WorkerIdentifier"], "one");
    let is_named = |line: &Value| line.get("WorkerIdentifier").is_none_or(|name| name == "one");
    assert!(lines.iter().all(is_named), "{lines:?}");
    // The line of the worker follows the lines of its shards.
    let mut behind = 0_u64;
    for line in &lines {
        behind += u64::from(line.get("MillisBehindLatest").is_some());
        if let Some(held) = line.get("CurrentLeases") {
            assert_eq!(*held, std::mem::take(&mut behind), "each print has the lag of each shard");
        }
    }
    let all_are_declared = lines.iter().all(|line| {
        let declared = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
        declared.iter().all(|metric| line.get(metric["Name"].as_str().unwrap()).is_some())
    });
    assert!(all_are_declared && !lines.is_empty());
}

fn run(place: &Place, metrics: &str) -> (Output, String) {
    let mut command = Command::new(BINARY);
    command.envs(place.environment()).arg("-p").arg(place.properties("one"));
    let output = command.args(["--metrics", metrics]).output().unwrap();
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    (output, stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_address_is_refused_with_a_sentence() {
    let place = Place::of_shards(1, "sh").await;
    for wrong in ["localhost:9464", "127.0.0.1", "emv", "0"] {
        let (output, stderr) = run(&place, wrong);

        assert_eq!(output.status.code(), Some(2), "{wrong}: {stderr}");
        assert!(stderr.contains("as in 127.0.0.1:9464, or emf"), "{wrong}: {stderr}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();

    let (output, stderr) = run(&place, &address);

    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap();
    assert!(last.contains(&format!("metrics cannot be served at {address}: ")), "{stderr}");
}
