//! The promises of the conformance kit that a store breaks.

use std::sync::{Mutex, PoisonError};
use std::thread;

use lease_core::conformance::{Fixture, Promise, lock_promises, table_promises};
use lease_core::store::LeaseTable;

use crate::sync::lock;

/// Returns the broken promises of both traits. Each promise has a separate fixture.
pub fn broken_of_both<F>(fixture: impl Fn() -> F + Sync) -> Vec<&'static str>
where
    F: Fixture,
    F::Store: LeaseTable,
{
    broken(lock_promises().into_iter().chain(table_promises()).collect(), fixture)
}

/// Returns the promises among `names` that a store breaks.
pub fn broken_of_these<F>(names: &[&str], fixture: impl Fn() -> F + Sync) -> Vec<&'static str>
where
    F: Fixture,
    F::Store: LeaseTable,
{
    let both = lock_promises().into_iter().chain(table_promises());
    broken(both.filter(|promise| names.contains(&promise.name)).collect(), fixture)
}

/// Returns the broken promises. Tests eight promises at a time, since most tests wait for timers.
pub fn broken<F: Fixture>(
    promises: Vec<Promise<F>>,
    fixture: impl Fn() -> F + Sync,
) -> Vec<&'static str> {
    let promises = Mutex::new(promises.into_iter());
    let next = || lock(&promises).next();
    let broken = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some(promise) = next() {
                    let fixture = fixture();
                    if thread::spawn(move || (promise.check)(fixture)).join().is_err() {
                        lock(&broken).push(promise.name);
                    }
                }
            });
        }
    });
    broken.into_inner().unwrap_or_else(PoisonError::into_inner)
}
