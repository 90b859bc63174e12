//! Measures the processor time that Redis servers need per cycle.

use std::sync::Arc;

use lease_test_servers::redis::{RedisServer, independent};

use super::contestants::{on_one, on_quorum};
use super::cycles::{count_of, cycles_by_tasks};
use crate::cores::SeparateCores;
use crate::lock::Lock;
use crate::locks::redlock::Redlock;
use crate::machine::processor_time_of;
use crate::race::Race;
use crate::report::{Better, Table};

pub(crate) async fn of_servers(rounds: usize) -> Vec<Table> {
    let mut tables = of_one(rounds).await;
    tables.extend(of_a_quorum(rounds).await);
    tables
}

async fn of_one(rounds: usize) -> Vec<Table> {
    let (server, _apart) = SeparateCores::start(async { RedisServer::start() }).await;
    let mut locks = on_one(&server.url()).await;
    locks.push(Arc::new(Redlock::new(&[server.url()])));
    per_cycle("processor", "of one Redis", &locks, &[server], rounds, &[(1, 8_000), (64, 8_000)]).await
}

async fn of_a_quorum(rounds: usize) -> Vec<Table> {
    let (servers, _apart) = SeparateCores::start(async { independent(5) }).await;
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let locks = on_quorum(&urls).await;
    let sizes = [(1, 2_000), (64, 4_000), (256, 8_000)];
    per_cycle("processor-quorum", "of each of 5 Redis", &locks, &servers, rounds, &sizes).await
}

async fn per_cycle(
    name: &str,
    whose: &str,
    locks: &[Arc<dyn Lock>],
    servers: &[RedisServer],
    rounds: usize,
    sizes: &[(usize, usize)],
) -> Vec<Table> {
    let processes: Vec<_> = servers.iter().map(process_of).collect();
    let mut tables = Vec::new();
    for (tasks, cycles) in sizes.iter().copied() {
        let mut race = Race::default();
        for lock in locks {
            let processes = &processes;
            race.enter(lock.name(), move || async move {
                let before = mean_time(processes);
                let done = cycles_by_tasks(Arc::clone(lock), tasks, cycles).await?;
                Some((mean_time(processes) - before) * 1e6 / done.count())
            });
        }
        tables.push(Table {
            name: format!("{name}-{tasks}"),
            title: format!("Processor time {whose} per obtain and release, {}", count_of(tasks)),
            unit: "µs",
            better: Better::Less,
            scores: race.run(rounds).await,
        });
    }
    tables
}

/// The result is in seconds.
fn mean_time(processes: &[u32]) -> f64 {
    let all: f64 = processes.iter().map(|process| processor_time_of(*process)).sum();
    all / f64::from(u32::try_from(processes.len()).unwrap())
}

fn process_of(server: &RedisServer) -> u32 {
    let information = server.command("INFO server");
    let line = information.lines().find_map(|line| line.strip_prefix("process_id:"));
    line.unwrap().trim().parse().unwrap()
}
