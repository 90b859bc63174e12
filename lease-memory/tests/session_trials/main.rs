//! Trials of leases under sessions, on the memory store. Each control breaks one rule of the store.
//!
//! The real locker runs on a bad network in virtual time. The test `session_model` covers the rules
//! of the locker. At full size:
//! `LEASE_SEEDS=100000 cargo test --release -p lease-memory --test session_trials -- --nocapture keep`
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics, and prints its figures"
)]

mod broken;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_core::conformance::{
    Contender, Faulty, RecordingStore, SeedRange, SharedStore, Trial, Verdict,
};
use lease_core::store::LeaseTable;
use lease_core::{Change, HandOver, Handed, Lease, LeaseKey, Session, StoreError, Ttl};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use broken::{Broken, Rule};

type Mail = Arc<Mutex<Vec<HandOver>>>;

type Store = Faulty<Arc<RecordingStore<Broken>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sessions {
    Short,
    Long,
}

#[test]
fn sessions_keep_their_promises() {
    let survey = SeedRange::fresh(500).all_hold(|seed| run(seed, sessions_of(seed), None));

    println!("sessions: {survey}");
    let count = usize::try_from(survey.seeds.end - survey.seeds.start).unwrap();
    assert!(
        count < 100 || survey.with_notified_losers * 3 > count,
        "too few trials report a loss to a holder"
    );
}

#[test]
fn same_seed_gives_the_same_trace_of_sessions() {
    for seed in 0..10 {
        assert_eq!(run(seed, Sessions::Short, None), run(seed, Sessions::Short, None));
    }
}

#[test]
fn session_ended_by_a_stale_read_is_detected() {
    detects(Rule::EndIsWritten, Sessions::Short, "two holders");
}

#[test]
fn record_without_the_sessions_token_is_detected() {
    detects(Rule::ParentToken, Sessions::Short, "two holders");
}

#[test]
fn token_that_does_not_grow_is_detected() {
    detects(Rule::TokenGrows, Sessions::Short, "tokens out of order");
}

#[test]
fn release_by_session_alone_is_detected() {
    detects(Rule::ReleaseNamesGrant, Sessions::Long, "two holders");
}

#[test]
fn checkpoint_by_name_alone_is_detected() {
    detects(Rule::CheckpointNamesGrant, Sessions::Short, "a former holder's write");
}

#[test]
fn claim_that_ignores_the_token_is_detected() {
    detects(Rule::ClaimNamesToken, Sessions::Long, "no progress");
}

#[test]
fn claim_that_is_not_repeated_is_detected() {
    detects(Rule::Settle, Sessions::Long, "no progress");
}

#[test]
fn condition_on_the_sessions_record_is_detected() {
    detects(Rule::ProofBeforeClaim, Sessions::Long, "no progress");
}

fn detects(rule: Rule, sessions: Sessions, what: &str) {
    let is_meant = |verdict: Verdict| {
        let meant =
            |violation: &lease_core::conformance::Violation| violation.what.starts_with(what);
        let mut verdict = verdict;
        verdict.violations.retain(meant);
        verdict
    };
    let found =
        SeedRange::first(4000).find_violation(|seed| is_meant(run(seed, sessions, Some(rule))));
    let (seed, violation) = found.unwrap();
    println!("without {rule:?}: seed {seed}: {violation}");
}

fn sessions_of(seed: u64) -> Sessions {
    if seed.is_multiple_of(2) { Sessions::Short } else { Sessions::Long }
}

fn run(seed: u64, sessions: Sessions, without: Option<Rule>) -> Verdict {
    let mail = Mail::default();
    Trial::new(seed).run(
        |world| SharedStore::new(world, Broken::new(without)),
        move |contender: Contender<Store>| contend(contender, Arc::clone(&mail), sessions),
    )
}

async fn contend(contender: Contender<Store>, mail: Mail, sessions: Sessions) {
    let mut random = StdRng::seed_from_u64(!contender.seed);
    let own: LeaseKey = format!("workers/{}", contender.locker.lessee()).parse().unwrap();
    loop {
        let Ok(session) = Session::start(&contender.locker, &own).await else { continue };
        let leases = match sessions {
            Sessions::Short => random.random_range(1..5),
            Sessions::Long => u32::MAX,
        };
        for _ in 0..leases {
            // An error means that the session has ended.
            let Ok(lease) = next(&session, &mail).await else { break };
            if let Some(lease) = lease {
                work(&contender, lease, &mail, &mut random).await;
            }
            let ttl = contender.locker.options().ttl();
            tokio::time::sleep(part_of(&mut random, ttl)).await;
        }
        if random.random_bool(0.5) {
            drop(session.end().await);
        }
    }
}

async fn next(session: &Session, mail: &Mail) -> Result<Option<Lease>, StoreError> {
    let handed: Option<HandOver> = mail.lock().unwrap().pop();
    match handed {
        // After an error, the outcome is unknown. The key is free again when the hand-over expires.
        Some(handed) => Ok(session.locker().resume(handed).await.unwrap_or_default()),
        None => session.locker().wait_until_obtained(&"shared".parse().unwrap()).await.map(Some),
    }
}

async fn work(contender: &Contender<Store>, lease: Lease, mail: &Mail, random: &mut StdRng) {
    let ttl = contender.locker.options().ttl();
    contender.witness.watch(&lease);
    let work = part_of(random, ttl * 4);
    // The calls below return a loss.
    let worked = lease.run_until_lost(async {
        tokio::time::sleep(work / 2).await;
        let change = Change::new().set("token", lease.token().get());
        // The recording store checks whether the write was allowed.
        drop(contender.store.update(lease.grant(), &change).await);
        tokio::time::sleep(work / 2).await;
    });
    drop(worked.await);
    match random.random_range(0..4) {
        0 | 1 => drop(lease.release().await),
        2 => {
            let wait = ttl / 2 + part_of(random, ttl * 2);
            if let Ok(Handed::Over(handed)) = lease.hand_over(Ttl::clamped(wait)).await {
                mail.lock().unwrap().push(handed);
            }
        }
        _ => drop(lease),
    }
}

fn part_of(random: &mut StdRng, length: Duration) -> Duration {
    length.mul_f64(random.random_range(0.0..1.0))
}
