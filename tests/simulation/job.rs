//! The job of a contender in every trial: obtain or resume, work, write, release or hand over.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lease_core::conformance::Contender;
use lease_core::store::LockStore;
use lease_core::{HandOver, Handed, Lease, LeaseKey, Ttl};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

pub(crate) type Mail = Arc<Mutex<Vec<HandOver>>>;

pub(crate) type Write<S> = for<'a> fn(&'a S, &'a Lease) -> BoxFuture<'a, ()>;

/// Contends for one key until its process ends.
pub(crate) async fn contend<S: LockStore>(contender: Contender<S>, mail: Mail, write: Write<S>) {
    let mut random = StdRng::seed_from_u64(!contender.seed);
    let key: LeaseKey = "shared".parse().unwrap();
    let (locker, ttl) = (&contender.locker, contender.locker.options().ttl());
    loop {
        let handed = mail.lock().unwrap().pop();
        let lease = match handed {
            Some(handed) => locker.resume(handed).await,
            None => locker.wait_until_obtained(&key).await.map(Some),
        };
        let Ok(Some(lease)) = lease else { continue };
        contender.witness.watch(&lease);

        let work = part_of(&mut random, ttl * 4);
        // The calls below report a loss.
        let worked = lease.run_until_lost(async {
            tokio::time::sleep(work / 2).await;
            write(&contender.store, &lease).await;
            tokio::time::sleep(work / 2).await;
        });
        drop(worked.await);

        match random.random_range(0..4) {
            0 | 1 => drop(lease.release().await),
            2 => {
                let wait = ttl / 2 + part_of(&mut random, ttl * 2);
                if let Ok(Handed::Over(handed)) = lease.hand_over(Ttl::clamped(wait)).await {
                    mail.lock().unwrap().push(handed);
                }
            }
            _ => drop(lease),
        }
        // Without a pause, this contender would obtain the key again, since the store promises no
        // fairness.
        tokio::time::sleep(part_of(&mut random, ttl)).await;
    }
}

fn part_of(random: &mut StdRng, length: Duration) -> Duration {
    length.mul_f64(random.random_range(0.0..1.0))
}
