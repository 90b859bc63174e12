//! Leases under sessions on one server, beside plain leases of the same key, and controls.
//!
//! The session of each contender is a lock. The shared key is a record once a contender held it
//! under a session.

use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::{Contender, Fault, SeedRange, Verdict};
use lease_core::store::LeaseTable;
use lease_core::{Change, Lease, LeaseKey, Session};
use lease_redis::RedisStore;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::controls::find;
use super::fleet::{Clocks, Plan};
use super::model::Servers;
use super::server::scripts::Edition;
use super::{but_for_exclusion, check_that_leases_were_granted, report, sound, trial};
use crate::job::Mail;
use crate::session_job::{Sessions, end, next, part_of};

#[test]
fn sessions_on_one_server_keep_their_promises() {
    let survey = SeedRange::fresh(60).all_hold(|seed| run(seed, sound(1), Sessions::of(seed)));
    report("sessions on one server", &survey);
}

/// Sessions expire early, so two lessees may hold a key. Tokens stay unique.
#[test]
fn sessions_with_a_leaping_clock_break_only_exclusion() {
    let plan = Plan { clocks: Clocks::LeapAhead, ..sound(1) };
    let trial = |seed| but_for_exclusion(run(seed, plan.clone(), Sessions::of(seed)));
    let survey = SeedRange::fresh(30).all_hold(trial);
    report("sessions with a leaping clock, except exclusion", &survey);
}

#[test]
fn same_seed_gives_the_same_trace_of_sessions() {
    for seed in 0..5 {
        assert_eq!(run(seed, sound(1), Sessions::Short), run(seed, sound(1), Sessions::Short));
    }
}

/// A locker reads the record of a session before ending the session, so the read must be wrong,
/// too.
#[test]
fn end_of_a_session_that_is_held_is_detected() {
    let held = "if string.sub(text, 33, 33) ~= 'r' then";
    let no_holder = "string.find(lease, 'workers') and { 'free' } or holder_at(lease), false";
    let edition = Edition::default().with("end_session", held, "if false then").with(
        "read",
        "holder_at(lease), false",
        no_holder,
    );
    detects("end of a session that is held", &edition, Sessions::Long, "two holders");
}

/// A late copy of a claim would be granted, without a holder.
#[test]
fn claim_that_ignores_the_token_is_detected() {
    let edition = Edition::default().with(
        "obtain_under",
        "local is_as_seen = token == seen",
        "local is_as_seen = true",
    );
    with_late_claims("claims without the token", &edition);
}

#[test]
fn repeated_claim_without_its_grant_is_detected() {
    let again = "if holds and past[1] == nonce then";
    let edition = Edition::default().with("obtain_under", again, "if false then");
    detects("repeated claims without their grant", &edition, Sessions::Long, "no progress");
}

#[test]
fn child_that_expires_is_detected() {
    let edition = Edition::default().with("obtain_under", "'ends', '9007199254740991', ", "");
    detects("children with a ttl", &edition, Sessions::Long, "two holders");
}

#[test]
fn child_that_stays_under_its_session_after_a_heartbeat_is_detected() {
    let edition = Edition::default().with(
        "heartbeat",
        "    if held[7] then\n        remove_end(lease)\n",
        "    if false then\n",
    );
    detects("children that are handed over", &edition, Sessions::Short, "two holders");
}

/// A late copy of a claim that a lock has refused would be granted, without a holder.
#[test]
fn refusal_by_a_lock_that_is_not_final_is_detected() {
    let edition = Edition::default()
        .with("obtain_under", "lease .. ':refused', take", "lease .. ':other', take")
        .with("obtain", " and not past[10]", "");
    with_late_claims("refusals that are not final", &edition);
}

fn with_late_claims(control: &str, edition: &Edition) {
    const LATE: Mishaps = &[("obtain_under", Fault::ApplyLate(Duration::from_millis(1200)))];
    let plan = |edition| Plan { mishaps: LATE, edition, ..sound(1) };
    find(control, SeedRange::first(2000), |seed| {
        only(run(seed, plan(edition.clone()), Sessions::Long), "no progress")
    });
    SeedRange::fresh(30).all_hold(|seed| run(seed, plan(Edition::default()), Sessions::Long));
}

type Mishaps = &'static [(&'static str, Fault)];

fn detects(control: &str, edition: &Edition, sessions: Sessions, what: &str) {
    let plan = Plan { edition: edition.clone(), ..sound(1) };
    find(control, SeedRange::first(2000), |seed| only(run(seed, plan.clone(), sessions), what));
}

fn only(mut verdict: Verdict, what: &str) -> Verdict {
    verdict.violations.retain(|violation| violation.what.starts_with(what));
    verdict
}

fn run(seed: u64, plan: Plan, sessions: Sessions) -> Verdict {
    let mail = Mail::default();
    let verdict = trial(seed).run(
        |world| Servers::of_one(world, plan),
        move |contender| contend(contender, Arc::clone(&mail), sessions),
    );
    check_that_leases_were_granted(&verdict);
    verdict
}

async fn contend(contender: Contender<RedisStore>, mail: Mail, sessions: Sessions) {
    let mut random = StdRng::seed_from_u64(!contender.seed);
    let own: LeaseKey = format!("workers/{}", contender.locker.lessee()).parse().unwrap();
    loop {
        let Ok(session) = Session::start(&contender.locker, &own).await else { continue };
        let leases = match sessions {
            Sessions::Short => random.random_range(1..5),
            Sessions::Long => u32::MAX,
        };
        for _ in 0..leases {
            let is_plain = random.random_bool(0.2);
            let locker = if is_plain { &contender.locker } else { session.locker() };
            match next(locker, &mail).await {
                Ok(Some(lease)) => work(&contender, lease, &mail, &mut random).await,
                Err(_) if !session.lease().is_held() => break,
                Ok(None) | Err(_) => (),
            }
            let ttl = contender.locker.options().ttl();
            tokio::time::sleep(part_of(&mut random, ttl)).await;
        }
        if random.random_bool(0.5) {
            drop(session.end().await);
        }
    }
}

async fn work(contender: &Contender<RedisStore>, lease: Lease, mail: &Mail, random: &mut StdRng) {
    let ttl = contender.locker.options().ttl();
    contender.witness.watch(&lease);
    let work = part_of(random, ttl * 4);
    let writes = random.random_bool(0.1);
    // The calls below return a loss.
    let worked = lease.run_until_lost(async {
        tokio::time::sleep(work / 2).await;
        if writes {
            let change = Change::new().set("token", lease.token().get());
            // The ledger judges whether the write was allowed.
            drop(contender.store.update(lease.grant(), &change).await);
        }
        tokio::time::sleep(work / 2).await;
    });
    drop(worked.await);
    end(lease, ttl, mail, random).await;
}
