//! The example `observed_worker`: a real Prometheus scrapes it.

use std::process::Command;

use lease_test_servers::port::free_port;
use lease_test_servers::prometheus::PrometheusServer;

use crate::program;

struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_scrapes_observed_worker() {
    let address = ([127, 0, 0, 1], free_port()).into();
    let Some(server) = PrometheusServer::scraping(address).await else { return };
    let mut command = Command::new(program("observed_worker"));
    let started = command.args(["--listen", &address.to_string()]).spawn();
    let _running = Killed(started.expect("the example starts"));

    server.wait_for(r#"lease_kinesis_shards_held{stream="clicks"}"#, |held| *held == [4.0]).await;
    let more = |records: &[f64]| records.iter().any(|records| *records > 100.0);
    server.wait_for(r#"lease_kinesis_records_total{stream="clicks"}"#, more).await;
    // The worker also has a lease of its own row.
    server.wait_for(r#"lease_held{group="all"}"#, |held| *held == [5.0]).await;
}
