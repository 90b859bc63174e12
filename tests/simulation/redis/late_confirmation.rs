//! A heartbeat confirms a claim after the claim's first grant has expired. A quorum grants a
//! repeated claim anew, so its locker sends no such heartbeat.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lease_core::conformance::{Call, Contender, Fault, Faulty, Model, ModelContext, Verdict};
use lease_core::store::LockStore;
use lease_core::{Attempt, LeaseKey, LeaseOptions, Locker};
use tokio::time::sleep;

use super::fleet::{Network, Plan};
use super::model::Servers;
use super::{sound, trial};

#[test]
fn claim_confirmed_after_its_expiry_gives_no_lease() {
    let verdict = confirm_late(|world| Servers::of_one(world, calm(1)));
    assert!(verdict.violations.is_empty(), "{}", verdict.report(60));
}

/// Redis extends any grant with the claim's nonce. A duplicate of the claim is granted after
/// another holder's lease, so the claim's first token is smaller than the other holder's token.
fn confirm_late<M, S>(model: impl FnOnce(ModelContext) -> M) -> Verdict
where
    M: Model<Store = S>,
    S: LockStore,
{
    let confirmed = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&confirmed);
    let trial = trial(0).with_options(options()).with_contenders(1).without_faults();
    let verdict = trial.run(model, move |contender| contend(contender, Arc::clone(&seen)));
    assert_eq!(confirmed.load(Ordering::Relaxed), 1, "{}", verdict.report(60));
    verdict
}

fn options() -> LeaseOptions {
    LeaseOptions::new(TTL).unwrap()
}

fn calm(servers: usize) -> Plan {
    Plan { strikes: &[], network: Network::Reliable, ..sound(servers) }
}

async fn contend<S: LockStore>(contender: Contender<S>, confirmed: Arc<AtomicUsize>) {
    let Contender { locker: other, store, witness, .. } = contender;
    let key: LeaseKey = "shared".parse().unwrap();
    let store = Faulty::new(store);
    let locker = Locker::new(store.clone()).with_options(options());

    // The claim is granted at once, and its duplicate after 3.23 s.
    store.next(Call::Obtain, Fault::LoseReply);
    store.next(Call::Obtain, Fault::ApplyLate(Duration::from_millis(2980)));
    store.every(Call::Obtain, Fault::Fail);
    assert!(locker.obtain(&key).await.is_err());
    sleep(Duration::from_millis(1400)).await;

    // The reply to the repeated claim comes after 2.4 s, and the heartbeat arrives after 3.35 s.
    store.heal();
    store.next(Call::Obtain, Fault::DelayReply(Duration::from_millis(950)));
    store.next(Call::Heartbeat, Fault::DelayRequest(Duration::from_millis(950)));
    let in_between = async {
        sleep(Duration::from_millis(1720)).await;
        let lease = other.obtain(&key).await.unwrap().into_lease().unwrap();
        witness.watch(&lease);
        lease.release().await.unwrap();
    };
    let (attempt, ()) = tokio::join!(locker.obtain(&key), in_between);
    if let Ok(Attempt::Obtained(lease)) = &attempt {
        witness.watch(lease);
    }
    confirmed.fetch_add(store.calls(Call::Heartbeat), Ordering::Relaxed);
    drop(attempt);

    loop {
        let lease = other.wait_until_obtained(&key).await.unwrap();
        witness.watch(&lease);
        sleep(TTL).await;
    }
}

const TTL: Duration = Duration::from_secs(3);
