//! Trials on the memory store, and controls that break the assumptions of the lease itself.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lease_core::conformance::{
    Contender, Faulty, RecordingStore, SeedRange, SharedStore, Trial, Verdict,
};
use lease_core::store::LeaseTable;
use lease_core::{Change, Lease, LeaseOptions};
use lease_memory::MemoryStore;

use crate::job::{Mail, contend};

type Store = Faulty<Arc<RecordingStore<MemoryStore>>>;

#[test]
fn memory_keeps_its_promises() {
    let survey = SeedRange::fresh(500).all_hold(|seed| run(Trial::new(seed)));

    println!("memory: {survey}");
    let count = usize::try_from(survey.seeds.end - survey.seeds.start).unwrap();
    assert!(
        count < 100 || survey.with_notified_losers * 2 > count,
        "too few trials report a loss to a holder"
    );
}

#[test]
fn same_seed_gives_the_same_trace() {
    for seed in 0..20 {
        assert_eq!(run(Trial::new(seed)), run(Trial::new(seed)));
    }
}

/// Clock rates differ ten times as much as the options assume.
#[test]
fn clock_rates_beyond_the_assumption_are_detected() {
    let found =
        SeedRange::first(200).find_violation(|seed| run(Trial::new(seed).with_clock_rates(0.1)));
    report("clocks 10 % off", found);
}

#[test]
fn deadline_without_margin_is_detected() {
    let trial = |seed, assumed: f64| {
        let options = LeaseOptions::new(Duration::from_millis(200)).unwrap();
        let options = options.with_clock_rate_error(assumed).unwrap();
        run(Trial::new(seed).with_options(options).with_clock_rates(0.05))
    };

    SeedRange::first(200).all_hold(|seed| trial(seed, 0.1));
    let found = SeedRange::first(200).find_violation(|seed| trial(seed, 0.0));
    report("no margin", found);
}

#[test]
fn clocks_that_stop_during_suspend_are_detected() {
    let found =
        SeedRange::first(200).find_violation(|seed| run(Trial::new(seed).with_clocks_that_stop()));
    report("clocks that stop", found);
}

fn run(trial: Trial) -> Verdict {
    let mail = Mail::default();
    trial.run(
        |world| SharedStore::new(world, MemoryStore::counting_from_one()),
        move |contender: Contender<Store>| contend(contender, Arc::clone(&mail), write),
    )
}

fn write<'a>(store: &'a Store, lease: &'a Lease) -> BoxFuture<'a, ()> {
    let change = Change::new().set("token", lease.token().get());
    // The ledger judges whether the write was allowed.
    async move { drop(store.update(lease.grant(), &change).await) }.boxed()
}

fn report(control: &str, found: Option<(u64, lease_core::conformance::Violation)>) {
    let (seed, violation) = found.unwrap();
    println!("{control}: seed {seed}: {violation}");
}
