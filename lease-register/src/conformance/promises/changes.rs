//! Watches and the clock of the service. A register may have neither.

use std::time::Duration;

use lease_core::LeaseKey;
use lease_core::store::Freed;

use crate::conformance::Fixture;
use crate::conformance::case::{Case, name, record};
use crate::register::{Register, Version};

/// A watch wakes if the record is replaced through another handle.
pub async fn watch_wakes_on_replacement<F: Fixture>(case: Case<F>) {
    let key = name("register/key");
    let seen = case.create(&key).await;
    let Some(watch) = case.watch(&key, Some(&seen)).await else { return };

    case.write(&key, Some(&seen), &record()).await;

    wakes(watch, "a replacement").await;
}

/// A watch of an absent key wakes if a record is created.
pub async fn watch_of_absent_key_wakes_on_creation<F: Fixture>(case: Case<F>) {
    let key = name("register/key");
    let Some(watch) = case.watch(&key, None).await else { return };

    case.create(&key).await;

    wakes(watch, "a creation").await;
}

/// A watch wakes if the record is deleted by hand.
pub async fn watch_wakes_on_deletion<F: Fixture>(case: Case<F>) {
    let key = name("register/key");
    let seen = case.create(&key).await;
    let Some(watch) = case.watch(&key, Some(&seen)).await else { return };
    if !case.delete(&key).await {
        return;
    }

    wakes(watch, "a deletion").await;
}

/// If the record was replaced before the watch began, the watch wakes at once.
pub async fn late_watch_wakes_at_once<F: Fixture>(case: Case<F>) {
    let key = name("register/key");
    let seen = case.create(&key).await;
    case.write(&key, Some(&seen), &record()).await;

    let Some(watch) = case.watch(&key, Some(&seen)).await else { return };

    wakes(watch, "a replacement before the watch began").await;
}

/// If the register has a clock, a read sets it.
pub async fn clock_is_known_after_a_read<F: Fixture>(case: Case<F>) {
    drop(case.read(&name("register/key")).await);

    let Some(clock) = case.register.clock() else { return };

    assert!(
        clock.now().is_some(),
        "the register should tell its clock the date of each answer, and when it sent the request"
    );
}

impl<F: Fixture> Case<F> {
    /// Watches through the second handle. `None` if the register has no watches.
    async fn watch(&self, key: &LeaseKey, seen: Option<&Version>) -> Option<Freed> {
        let watch = self.other.changed(key, seen).await.ok()?;
        watch.can_wake().then_some(watch)
    }
}

async fn wakes(watch: Freed, cause: &str) {
    let woken = tokio::time::timeout(Duration::from_secs(60), watch).await;
    assert!(
        woken.is_ok(),
        "a watch did not wake within a minute of {cause}: the register should wake it, or return \
         `Freed::never`"
    );
}
