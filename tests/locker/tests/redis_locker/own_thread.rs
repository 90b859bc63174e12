//! A locker on its own thread, in a process whose application blocks its runtime.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use lease_core::{Lease, LeaseOptions, Locker, StoreError};
use lease_redis::RedisStore;
use lease_test_servers::redis::{RedisServer, available};
use tokio::runtime::{Builder, Runtime};

/// A busy machine schedules each thread several times in this time.
const TTL: Duration = Duration::from_secs(2);
const WORKERS: usize = 2;

fn application() -> Runtime {
    Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap()
}

fn block_all_workers(application: &Runtime, length: Duration) {
    let all_blocked = Arc::new(Barrier::new(WORKERS));
    let blocked = [(); WORKERS].map(|()| {
        let all_blocked = Arc::clone(&all_blocked);
        application.spawn(async move {
            all_blocked.wait();
            thread::sleep(length);
            all_blocked.wait();
        })
    });
    for worker in blocked {
        application.block_on(worker).unwrap();
    }
}

async fn on_own_thread(server: &RedisServer) -> Locker {
    let url = server.url();
    let connect = async move || -> Result<_, StoreError> { RedisStore::connect(&url).await };
    Locker::on_own_thread(connect).await.unwrap().with_options(LeaseOptions::new(TTL).unwrap())
}

async fn with_runtime(server: &RedisServer, runtime: &Runtime) -> Locker {
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let options = LeaseOptions::new(TTL).unwrap();
    Locker::new(store).with_options(options).with_runtime(runtime.handle().clone())
}

async fn some_leases(locker: &Locker) -> Vec<Lease> {
    let mut leases = Vec::new();
    for number in 0..20 {
        let key = format!("{number}").parse().unwrap();
        leases.push(locker.obtain(&key).await.unwrap().into_lease().unwrap());
    }
    leases
}

fn leases_on_own_thread(server: &RedisServer, application: &Runtime) -> Vec<Lease> {
    application.block_on(async {
        let locker = on_own_thread(server).await;
        some_leases(&locker).await
    })
}

fn held(leases: &[Lease]) -> usize {
    leases.iter().filter(|lease| lease.is_held()).count()
}

#[test]
fn locker_on_own_thread_keeps_leases_of_blocked_application() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let application = application();
    let leases = leases_on_own_thread(&server, &application);

    block_all_workers(&application, TTL * 10);

    assert_eq!(held(&leases), leases.len());
}

/// The control: the application's workers drive the connection, so the heartbeats get no answers.
#[test]
fn leases_are_lost_if_only_heartbeats_run_elsewhere() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let (application, elsewhere) = (application(), application());
    let leases = application.block_on(async {
        let locker = with_runtime(&server, &elsewhere).await;
        some_leases(&locker).await
    });

    block_all_workers(&application, TTL * 3);

    assert_eq!(held(&leases), 0);
}

#[test]
fn own_thread_reconnects_while_the_application_is_blocked() {
    if !available() {
        return;
    }
    let server = RedisServer::start();
    let application = application();
    let leases = leases_on_own_thread(&server, &application);

    thread::scope(|scope| {
        scope.spawn(|| block_all_workers(&application, TTL * 4));
        server.command("CLIENT KILL TYPE normal SKIPME yes");
    });

    assert_eq!(held(&leases), leases.len());
}
