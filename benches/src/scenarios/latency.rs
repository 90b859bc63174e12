//! Measures the time until a grant, for several numbers of tasks.

use std::sync::Arc;

use lease_test_servers::redis::RedisServer;

use super::contestants::on_one;
use super::cycles::cycles_by_tasks;
use crate::cores::SeparateCores;
use crate::lock::Lock;
use crate::peer_program::PeerProgram;
use crate::race::Race;
use crate::report::{Better, Table};

pub(crate) async fn by_tasks(rounds: usize) -> Vec<Table> {
    // The builds may use all cores, so they come before the server gets a core of its own.
    let programs = PeerProgram::build_all();
    let (server, _apart) = SeparateCores::start(async { RedisServer::start() }).await;
    let locks = on_one(&server.url()).await;
    let mut peers = Vec::new();
    for program in programs {
        peers.extend(program.start(&server.url()).await);
    }
    let mut tables = [
        ("latency-p50", "half of all grants take no longer", "ms, p50", Better::Less),
        ("latency-p99", "99 % of all grants take no longer", "ms, p99", Better::Less),
        ("latency-cycles", "cycles", "per second", Better::More),
    ]
    .map(|(name, what, unit, better)| Table {
        name: name.to_owned(),
        title: format!("A free key is taken and freed on one Redis, by 1 to 1024 tasks: {what}"),
        unit,
        better,
        scores: Vec::new(),
    });
    for tasks in [1, 4, 16, 64, 256, 1024] {
        let mut race = Race::default();
        for lock in &locks {
            race.enter_several(lock.name(), move || latencies(Arc::clone(lock), tasks));
        }
        for peer in &peers {
            race.enter_several(peer.name(), move || peer.round(tasks, CYCLES));
        }
        for (table, scores) in tables.iter_mut().zip(race.run_several(rounds).await) {
            for mut score in scores {
                score.name = format!("{}, {tasks}", score.name);
                table.scores.push(score);
            }
        }
    }
    tables.into()
}

/// The median and the 99th percentile in milliseconds, and the cycles per second.
async fn latencies(lock: Arc<dyn Lock>, tasks: usize) -> Option<[f64; 3]> {
    let cycles = cycles_by_tasks(lock, tasks, CYCLES).await?;
    let mut sorted = cycles.until_granted.clone();
    sorted.sort_by(f64::total_cmp);
    let percentile = |part: usize| Some(sorted.get((sorted.len() - 1) * part / 100)? * 1e3);
    Some([percentile(50)?, percentile(99)?, cycles.per_second()])
}

/// 16 cycles for each of 1,024 tasks.
const CYCLES: usize = 16_384;
