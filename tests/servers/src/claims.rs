//! Claims and grants, for tests that call a store directly.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::store::{Claim, Grant, LockStore, Nonce, Obtained, micros_since_1970};
use lease_core::{Attributes, Holder, LeaseKey, Lessee};
use uuid::Uuid;

/// Makes a key that no other test uses, even on a shared server.
///
/// # Panics
///
/// Panics if `name` is not a valid key.
pub fn fresh_key(name: &str) -> LeaseKey {
    let unique = fresh_nonce();
    LeaseKey::new(format!("{name}/{unique}")).expect("a key")
}

/// Makes a nonce that no other claim uses.
pub fn fresh_nonce() -> Nonce {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::SeqCst);
    let process = u64::from(std::process::id());
    Nonce::new(Uuid::from_u64_pair(micros_since_1970(), process << 32 | number))
}

/// Makes a claim of `key` with a fresh nonce.
///
/// # Panics
///
/// Panics if `lessee` is not a valid lessee.
pub fn claim(key: &LeaseKey, lessee: &str, ttl: Duration) -> Claim {
    let lessee = Lessee::new(lessee).expect("a lessee");
    Claim::new(key.clone(), lessee, fresh_nonce(), ttl)
}

/// Claims `key`, which must be free, and returns the grant.
///
/// # Panics
///
/// Panics if the key is held, or the store fails.
pub async fn obtain(store: &dyn LockStore, key: &LeaseKey, lessee: &str, ttl: Duration) -> Grant {
    let answer = store.obtain(&claim(key, lessee, ttl)).await;
    granted(answer.expect("an answer")).0
}

/// Returns the grant and the attributes of a granted claim.
///
/// # Panics
///
/// Panics if the key is held.
#[track_caller]
pub fn granted(obtained: Obtained) -> (Grant, Attributes) {
    match obtained {
        Obtained::Granted(grant, attributes) => (grant, attributes),
        Obtained::Held(holder) => panic!("held by {holder:?}"),
    }
}

/// Returns the holder that a refused claim reports.
///
/// # Panics
///
/// Panics if the key was granted.
#[track_caller]
pub fn held(obtained: Obtained) -> Holder {
    match obtained {
        Obtained::Held(holder) => holder,
        Obtained::Granted(grant, _) => panic!("granted: {grant:?}"),
    }
}

/// Waits up to five minutes for `what`, so that tests pass on a busy machine.
///
/// # Panics
///
/// Panics if `what` takes longer.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(5), what).await.expect("done within five minutes")
}

/// Calls `ask` every 25 ms until `ask` returns a value.
///
/// # Panics
///
/// Panics if `ask` returns no value within two minutes.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    let limit = Duration::from_mins(2);
    let answer = tokio::time::timeout(limit, asking).await;
    answer.unwrap_or_else(|_elapsed| panic!("not within {limit:?}: {what}"))
}

/// Claims `key` every 20 ms until it is granted.
///
/// # Panics
///
/// Panics if the claim is not granted within five minutes, or the store fails.
pub async fn take_over(
    store: &dyn LockStore,
    key: &LeaseKey,
    lessee: &str,
    ttl: Duration,
) -> Grant {
    soon(async {
        loop {
            let answer = store.obtain(&claim(key, lessee, ttl)).await;
            match answer.expect("an answer") {
                Obtained::Granted(grant, _) => return grant,
                Obtained::Held(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await
}
