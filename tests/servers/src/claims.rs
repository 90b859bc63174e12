//! Claims and what becomes of them, for tests that speak to a store directly.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::{
    Attributes, Claim, Grant, Holder, LeaseKey, Lessee, LockStore, Nonce, Obtained,
    micros_since_1970,
};
use uuid::Uuid;

/// A key that no other test uses, also not on a server that tests share.
///
/// # Panics
///
/// Where `name` is no key.
pub fn fresh_key(name: &str) -> LeaseKey {
    let unique = fresh_nonce();
    LeaseKey::new(format!("{name}/{unique}")).expect("a key")
}

/// A nonce that was never used.
pub fn fresh_nonce() -> Nonce {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::SeqCst);
    let process = u64::from(std::process::id());
    Nonce::new(Uuid::from_u64_pair(micros_since_1970(), process << 32 | number))
}

/// A fresh claim of `key`.
///
/// # Panics
///
/// Where `lessee` is no lessee.
pub fn claim(key: &LeaseKey, lessee: &str, ttl: Duration) -> Claim {
    let lessee = Lessee::new(lessee).expect("a lessee");
    Claim::new(key.clone(), lessee, fresh_nonce(), ttl)
}

/// Sends a claim of `key`; its grant, which there must be.
///
/// # Panics
///
/// Where the key is held, or the store does not say.
pub async fn obtain(store: &dyn LockStore, key: &LeaseKey, lessee: &str, ttl: Duration) -> Grant {
    let answer = store.obtain(&claim(key, lessee, ttl)).await;
    granted(answer.expect("an answer")).0
}

/// The grant and the attributes, which there must be.
///
/// # Panics
///
/// Where the key is held.
#[track_caller]
pub fn granted(obtained: Obtained) -> (Grant, Attributes) {
    match obtained {
        Obtained::Granted(grant, attributes) => (grant, attributes),
        Obtained::Held(holder) => panic!("held by {holder:?}"),
    }
}

/// The holder, which there must be.
///
/// # Panics
///
/// Where the key was granted.
#[track_caller]
pub fn held(obtained: Obtained) -> Holder {
    match obtained {
        Obtained::Held(holder) => holder,
        Obtained::Granted(grant, _) => panic!("granted: {grant:?}"),
    }
}

/// What must happen within five minutes, and in truth takes far less: a busy machine breaks no test.
///
/// # Panics
///
/// Where it does not.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(5), what).await.expect("done within five minutes")
}

/// Asks every 25 ms until there is an answer.
///
/// # Panics
///
/// Where there is none within two minutes.
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

/// Asks `store` for `key` every 20 ms until it is granted.
///
/// # Panics
///
/// Where it is not within a minute, or the store does not say.
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
