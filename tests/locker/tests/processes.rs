//! Workers in separate processes, whose wall clocks differ.
#![expect(clippy::expect_used, reason = "a test may fail")]

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use lease_core::store::micros_since_1970;
use lease_dynamodb::DynamoDbStore;
use lease_test_servers::claims::fresh_key;
use lease_test_servers::dynamodb::Server;
use lease_test_servers::tools::libfaketime;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Longer than a process pauses on a busy machine.
const TTL: Duration = Duration::from_secs(5);

const LIMIT: Duration = Duration::from_mins(5);

struct Worker {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(server: SocketAddr, key: &str, wall_clock: &str) -> Option<Self> {
        let mut process = Command::new(env!("CARGO_BIN_EXE_lease-worker"))
            .args([&server.to_string(), key, &TTL.as_millis().to_string()])
            .env("LD_PRELOAD", libfaketime()?)
            .env("FAKETIME", wall_clock)
            .env("DONT_FAKE_MONOTONIC", "1")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a worker");
        let stdout = process.stdout.take().expect("its output");
        Some(Self { process, lines: BufReader::new(stdout).lines() })
    }

    async fn says(&mut self, within: Duration) -> Option<String> {
        let line = timeout(within, self.lines.next_line()).await.ok()?;
        line.expect("its output can be read")
    }
}

/// Whether the first token of a key comes from a wall clock that is an hour ahead. The first
/// request has no response with DynamoDB's time yet, so tokens start from the wall clock.
fn is_an_hour_ahead(obtained: &str) -> bool {
    let token = obtained.strip_prefix("obtained under token ").expect("it obtained the key");
    let token: u64 = token.parse().expect("a token");
    token > micros_since_1970() + 3_500_000_000
}

/// An earlier system compared the wall clocks of two machines: `S1.f6` in
/// `docs/reports/earlier-systems.md`.
#[tokio::test]
async fn lease_survives_contender_with_clock_an_hour_off() {
    let server = Server::dynoxide().await;
    let store = DynamoDbStore::new(server.client(), "leases");
    store.ensure_table().await.expect("the table");
    for (holders, contenders) in [("+0h", "+1h"), ("+1h", "+0h")] {
        let key = fresh_key("job");
        let start = |clock| Worker::start(server.address(), key.as_str(), clock);
        let Some(mut holder) = start(holders) else { return };
        let said = holder.says(LIMIT).await.expect("the holder obtains");
        assert_eq!(
            is_an_hour_ahead(&said),
            holders == "+1h",
            "the wall clock is not faked: {said}"
        );

        let mut contender = start(contenders).expect("another worker");
        let stolen = contender.says(TTL * 2).await;
        assert_eq!(stolen, None, "{holders} {contenders}");
        assert_eq!(holder.says(Duration::ZERO).await, None, "the holder lost its lease");

        holder.process.kill().await.expect("the holder is killed");
        let taken = contender.says(LIMIT).await.expect("the contender obtains");
        assert!(taken.starts_with("obtained"), "{taken}");
    }
}
