//! The rate of grants of a quorum's key while a minority of its nodes hangs, in simulated time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::conformance::Contender;
use lease_core::{LeaseKey, LeaseOptions};
use lease_redis::RedisQuorum;

use super::fleet::{Network, Plan};
use super::model::Servers;
use super::server::scripts::Edition;
use super::{quarantined, sound, trial};

/// A client that waits for the timeout of a hung node obtains less than a tenth of the grants. Two
/// contenders that do not take turns reach a ratio of 0.67.
#[test]
fn hung_node_of_three_keeps_two_thirds_of_the_rate() {
    let rows = measured(&[(3, 1)], &[2, 5], 3);
    assert!(rows.iter().all(Row::is_fast), "{rows:#?}");
}

/// `cargo test -p lease-simulation-tests --test simulation -- --ignored --nocapture hung_minority`
#[test]
#[ignore = "minutes: the full size"]
fn hung_minority_keeps_two_thirds_of_the_rate() {
    let rows = measured(&[(3, 1), (5, 1), (5, 2)], &[2, 5, 20], 2);
    assert!(rows.iter().all(Row::is_fast), "{rows:#?}");
}

#[derive(Debug)]
#[expect(dead_code, reason = "a failed test prints it")]
struct Row {
    servers: usize,
    hung: usize,
    contenders: usize,
    ratio: f64,
}

impl Row {
    fn is_fast(&self) -> bool {
        let least = if self.contenders == 2 { 0.75 } else { 2.0 / 3.0 };
        self.ratio >= least
    }
}

fn measured(quorums: &[(usize, usize)], contenders: &[usize], seeds: u64) -> Vec<Row> {
    println!("| nodes | hung | contenders | healthy | hung | ratio |\n|--:|--:|--:|--:|--:|--:|");
    let mut rows = Vec::new();
    for (servers, hung) in quorums.iter().copied() {
        for contenders in contenders.iter().copied() {
            let granted = |hung| -> u64 {
                (0..seeds).map(|seed| grants(seed, servers, hung, contenders)).sum()
            };
            let (healthy, with_hung) = (granted(0), granted(hung));
            #[expect(clippy::cast_precision_loss, reason = "thousands")]
            let ratio = with_hung as f64 / healthy as f64;
            println!(
                "| {servers} | {hung} | {contenders} | {healthy} | {with_hung} | {ratio:.2} |"
            );
            rows.push(Row { servers, hung, contenders, ratio });
        }
    }
    rows
}

/// Counts the grants within 1.5 s. Nodes that do not hang are fast.
fn grants(seed: u64, servers: usize, hung: usize, contenders: usize) -> u64 {
    let plan = Plan {
        edition: Edition::default(),
        strikes: &[],
        hung,
        network: Network::Reliable,
        ..sound(servers)
    };
    let grants = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&grants);
    let options = LeaseOptions::new(Duration::from_secs(2)).unwrap();
    let verdict = trial(seed)
        .with_options(options)
        .with_contenders(contenders)
        .with_length(BEGIN + LENGTH)
        .without_faults()
        .run(
            |world| {
                Servers::of_a_quorum(world, plan, |builder| {
                    quarantined(builder).without_rejoin_delay()
                })
            },
            move |contender| contend(contender, Arc::clone(&counted)),
        );
    assert!(verdict.violations.is_empty(), "{}", verdict.report(60));
    grants.load(Ordering::Relaxed)
}

async fn contend(contender: Contender<RedisQuorum>, grants: Arc<AtomicU64>) {
    let key: LeaseKey = "shared".parse().unwrap();
    loop {
        let Ok(lease) = contender.locker.wait_until_obtained(&key).await else { continue };
        contender.witness.watch(&lease);
        if (BEGIN..BEGIN + LENGTH).contains(&contender.witness.ledger().now()) {
            grants.fetch_add(1, Ordering::Relaxed);
        }
        drop(lease.release().await);
    }
}

/// Nodes hang from [`Plan::HANG_AT`], so contenders know these nodes when the measurement starts.
const BEGIN: Duration = Duration::from_millis(600);

const LENGTH: Duration = Duration::from_millis(1500);
