//! A run with overlapping faults, which judges safety.

use std::sync::{Arc, Mutex};

use lease_dynamodb::DynamoDbStore;
use lease_test_servers::dynamodb::client_of;
use lease_test_servers::proxy::Link;
use lease_test_servers::sync::lock;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::chance::Chance;
use crate::failure::Failure;
use crate::faults::nemesis::Nemesis;
use crate::judge::ledger::Ledger;
use crate::judge::recovery::await_recovery;
use crate::judge::safety::{Verdict, judge};
use crate::load::run::{LoadEnded, LoadRun};
use crate::monotonic::Monotonic;
use crate::servers::postgres;
use crate::servers::server::Server;
use crate::setup::{Sabotage, Setup};
use crate::store::{Clocks, Store};
use crate::worker::fleet::Fleet;
use crate::worker::resource::{Gates, Resource};

pub(crate) async fn run_overlapping(
    setup: &Setup,
) -> Result<(Arc<Mutex<Ledger>>, Verdict, Option<LoadEnded>), Failure> {
    let mut chance = Chance::from_seed(setup.seed);
    let servers = start_servers(setup).await?;
    let (links, stores) = link(setup, &servers).await?;
    let ledger = Arc::new(Mutex::new(Ledger::new(Monotonic::now(), Clocks::InStep)));
    let gates = match setup.sabotage {
        Some(Sabotage::Heedless) => Gates::Open,
        _ => Gates::Shut,
    };
    let resource = Arc::new(Resource::new(setup.counters, gates, Arc::clone(&ledger)));
    let mut load = setup.load.map(LoadRun::new);
    let log = load.as_ref().map(|load| Arc::clone(&load.log));
    let logs = (&ledger, log.as_ref());
    let fleet = Fleet::start(setup, stores, &resource, logs, &mut chance)?;
    let first = servers.first().and_then(|server| server.address_for(0));
    let healthy = match (&mut load, first) {
        (Some(load), Some(first)) => Some(load.before_faults(setup.store, first).await?),
        _ => None,
    };

    let slots = fleet.slots.clone();
    let mut nemesis = Nemesis::new(setup, slots, links, servers, logs, &mut chance);
    let from = Monotonic::now();
    // The nemesis owns the servers, which must run until the workers have stopped.
    let end = from + setup.length;
    let nemesis = spawn_blocking(move || nemesis.run(end).map(|()| nemesis)).await??;
    let repaired = Monotonic::now();
    let starved = await_recovery(setup, &ledger).await;
    if let (Some(load), Some(healthy)) = (&mut load, healthy) {
        load.after_faults(from, repaired, healthy).await;
    }
    fleet.stop().await?;
    drop(nemesis);

    let mut verdict = judge(&lock(&ledger), setup.ttl);
    verdict.violations.extend(starved);
    let load = load.map(|load| load.judge(setup, &lock(&ledger)));
    Ok((ledger, verdict, load))
}

async fn start_servers(setup: &Setup) -> Result<Vec<Server>, Failure> {
    let count = match setup.sabotage {
        Some(Sabotage::Apart) => setup.processes(),
        _ => setup.store.servers(),
    };
    let store = setup.store;
    let start = move || match store {
        Store::Dynamodb => Server::dynamodb(),
        Store::Postgres => Server::postgres(),
        Store::Sqlite => Server::file(),
        _ => Server::redis(),
    };
    let servers = spawn_blocking(move || match store {
        Store::Etcd => Server::etcd_cluster(count),
        _ => (0..count).map(|_| start()).collect::<Result<Vec<_>, _>>(),
    });
    let servers = servers.await??;
    for address in servers.iter().filter_map(|server| server.address_for(0)) {
        match store {
            Store::Dynamodb => {
                DynamoDbStore::new(client_of(address), TABLE).ensure_table().await?;
            }
            Store::Postgres => postgres::create_table(address).await?,
            _ => (),
        }
    }
    // A new server of a quorum does not vote before the end of its rejoin delay.
    sleep(store.quarantine(setup.ttl)).await;
    Ok(servers)
}

async fn link(
    setup: &Setup,
    servers: &[Server],
) -> Result<(Vec<Vec<Arc<Link>>>, Vec<String>), Failure> {
    let (mut all, mut stores) = (Vec::new(), Vec::new());
    for worker in 0..setup.processes() {
        let reached = match setup.sabotage {
            Some(Sabotage::Apart) => servers.get(worker..=worker).unwrap_or_default(),
            _ => servers,
        };
        let mut links = Vec::new();
        for address in reached.iter().filter_map(|server| server.address_for(worker)) {
            links.push(Arc::new(Link::start(address).await?));
        }
        let places: Vec<_> = links.iter().map(|link| link.address().to_string()).collect();
        stores.push(match (setup.store, servers.first()) {
            (_, Some(Server::File(file))) => file.address(),
            (Store::Etcd, _) => format!("etcd://{}", places.join(",")),
            (Store::Postgres, _) => format!("postgres://{}", places.join(",")),
            (Store::Dynamodb, _) => format!("dynamodb://{}/{TABLE}", places.join(",")),
            _ => format!("redis://{}", places.join(",")),
        });
        all.push(links);
    }
    Ok((all, stores))
}

const TABLE: &str = "leases";
