//! A run with one fault at a time.

use std::sync::{Arc, Mutex};

use lease_test_servers::sync::lock;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::chance::Chance;
use crate::failure::Failure;
use crate::faults::episodes::Episodes;
use crate::judge::ledger::Ledger;
use crate::judge::observations::Observations;
use crate::judge::progress::{Progress, judge_progress};
use crate::judge::recovery::await_recovery;
use crate::judge::safety::{Verdict, judge};
use crate::monotonic::Monotonic;
use crate::servers::topology::Topology;
use crate::setup::{Sabotage, Setup};
use crate::worker::fleet::Fleet;
use crate::worker::resource::{Gates, Resource};

pub(crate) async fn run_single(
    setup: &Setup,
) -> Result<(Arc<Mutex<Ledger>>, Verdict, Option<Progress>), Failure> {
    let mut chance = Chance::from_seed(setup.seed);
    let (store, clocks) = (setup.store, setup.clocks);
    let topology = spawn_blocking(move || Topology::start(store, clocks)).await??;
    // The servers of a quorum are new, so no server votes before the end of its rejoin delay.
    sleep(store.quarantine(setup.max_ttl())).await;
    let ledger = Arc::new(Mutex::new(Ledger::new(Monotonic::now(), clocks)));
    let seen = Arc::new(Mutex::new(Observations::new(topology.shards.len())));
    let gates = match setup.sabotage {
        Some(Sabotage::Heedless) => Gates::Open,
        _ => Gates::Shut,
    };
    let resource = Arc::new(Resource::new(setup.counters, gates, Arc::clone(&ledger)));
    let stores = vec![topology.address(); setup.workers];
    let fleet = Fleet::start(setup, stores, &resource, (&ledger, None), &mut chance)?;

    let slots = fleet.slots.clone();
    let mut episodes = Episodes::start(setup, topology, slots, &seen, &ledger, &mut chance)?;
    let end = Monotonic::now() + setup.length;
    // `episodes` owns the servers, which must run until the workers have stopped.
    let episodes = spawn_blocking(move || episodes.run(end).map(|()| episodes)).await??;
    let starved = await_recovery(setup, &ledger).await;
    fleet.stop().await?;
    drop(spawn_blocking(move || drop(episodes)).await);

    let mut verdict = judge(&lock(&ledger), setup.ttl);
    verdict.violations.extend(starved);
    let progress = judge_progress(&lock(&seen));
    Ok((ledger, verdict, Some(progress)))
}
