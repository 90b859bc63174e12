//! Obtains and releases free keys. In each round, the contestants run one after another.

use std::sync::Arc;

use futures_util::future::join_all;
use lease_core::Locker;
use lease_test_servers::measure::{median, timed};
use lease_test_servers::postgres::PostgresServer;

use crate::contestants::{
    Advisory, Bare, Contestant, Library, ShedLock, Store, create_tables, pool,
};
use crate::store;

pub(crate) async fn measure(server: &PostgresServer, fsync: &str, tasks: usize) {
    create_tables(server, tasks);
    let store = store(server).await;
    let contestants: [(&str, Arc<dyn Contestant>); 5] = [
        ("bare conditional UPDATE", Arc::new(Bare(pool(server)))),
        ("ShedLock's statements", Arc::new(ShedLock(pool(server)))),
        ("advisory lock", Arc::new(Advisory(pool(server)))),
        ("this library's store", Arc::new(Store(store.clone()))),
        ("this library", Arc::new(Library(Locker::new(store)))),
    ];
    let each = if tasks == 1 { CYCLES } else { CYCLES * 4 / tasks };
    let mut rates = vec![Vec::new(); contestants.len()];
    for round in 0..=ROUNDS {
        for ((_, contestant), rates) in contestants.iter().zip(&mut rates) {
            let seconds = timed(run(contestant, tasks, each)).await;
            // The first round fills caches and the pool, so it does not count.
            if round > 0 {
                rates.push((tasks * each) as f64 / seconds);
            }
        }
    }
    println!("\ncycles per second, {tasks} tasks, {fsync}, {ROUNDS} rounds of {}:", tasks * each);
    let bare = rates.first().unwrap().clone();
    for ((name, _), rates) in contestants.iter().zip(&rates) {
        let mut ratios: Vec<_> = rates.iter().zip(&bare).map(|(one, bare)| one / bare).collect();
        ratios.sort_by(f64::total_cmp);
        let quartile = |part: usize| ratios.get(ratios.len() * part / 4).unwrap();
        println!(
            "| {name} | {:.0} | {:.2} ({:.2} to {:.2}) |",
            median(rates.clone()),
            quartile(2),
            quartile(1),
            quartile(3),
        );
    }
}

async fn run(contestant: &Arc<dyn Contestant>, tasks: usize, cycles: usize) {
    let all = (0..tasks).map(|task| {
        let contestant = Arc::clone(contestant);
        tokio::spawn(async move {
            let key = format!("key-{task}");
            for _ in 0..cycles {
                contestant.cycle(&key).await;
            }
        })
    });
    for ended in join_all(all).await {
        ended.unwrap();
    }
}

const ROUNDS: usize = 15;
const CYCLES: usize = 300;
