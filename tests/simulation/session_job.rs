//! The job of a contender in trials of sessions: obtain one key under a session of its own, again
//! and again.

use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::Contender;
use lease_core::store::LockStore;
use lease_core::{Handed, Lease, LeaseKey, Locker, Session, StoreError, Ttl};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::job::{Mail, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sessions {
    Short,
    Long,
}

impl Sessions {
    /// Half of the seeds have short sessions.
    pub(crate) fn of(seed: u64) -> Self {
        if seed.is_multiple_of(2) { Self::Short } else { Self::Long }
    }
}

pub(crate) async fn contend_under_sessions<S: LockStore>(
    contender: Contender<S>,
    mail: Mail,
    write: Write<S>,
    sessions: Sessions,
) {
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
            let Ok(lease) = next(session.locker(), &mail).await else { break };
            if let Some(lease) = lease {
                work(&contender, lease, &mail, write, &mut random).await;
            }
            let ttl = contender.locker.options().ttl();
            tokio::time::sleep(part_of(&mut random, ttl)).await;
        }
        if random.random_bool(0.5) {
            drop(session.end().await);
        }
    }
}

/// Resumes a hand-over, or waits for the key. Returns `None` if the hand-over was not resumed.
pub(crate) async fn next(locker: &Locker, mail: &Mail) -> Result<Option<Lease>, StoreError> {
    let handed = mail.lock().unwrap().pop();
    match handed {
        // After an error the outcome is unknown, and the key is free again after the wait.
        Some(handed) => Ok(locker.resume(handed).await.unwrap_or_default()),
        None => locker.wait_until_obtained(&"shared".parse().unwrap()).await.map(Some),
    }
}

async fn work<S: LockStore>(
    contender: &Contender<S>,
    lease: Lease,
    mail: &Mail,
    write: Write<S>,
    random: &mut StdRng,
) {
    let ttl = contender.locker.options().ttl();
    let store = Arc::clone(&contender.store);
    contender.witness.watch(&lease);
    let work = part_of(random, ttl * 4);
    // The calls below return a loss.
    let worked = lease.run_until_lost(async {
        tokio::time::sleep(work / 2).await;
        write(&store, &lease).await;
        tokio::time::sleep(work / 2).await;
    });
    drop(worked.await);
    end(lease, ttl, mail, random).await;
}

pub(crate) async fn end(lease: Lease, ttl: Duration, mail: &Mail, random: &mut StdRng) {
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

pub(crate) fn part_of(random: &mut StdRng, length: Duration) -> Duration {
    length.mul_f64(random.random_range(0.0..1.0))
}
