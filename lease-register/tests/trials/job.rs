//! What a contender does: obtains or resumes a lease, writes under it, and gives it up in one of several ways.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_core::conformance::Contender;
use lease_core::store::LeaseTable;
use lease_core::{Change, HandOver, Handed, LeaseKey, Ttl};
use lease_register::RegisterStore;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use crate::remote::Remote;

/// Hand-overs that no contender has resumed yet.
pub(crate) type Mail = Arc<Mutex<Vec<HandOver>>>;

pub(crate) async fn contend(contender: Contender<RegisterStore<Remote>>, mail: Mail) {
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
        let change = Change::new().set("token", lease.token().get());
        // Ignores a loss here, since the calls below report the loss. The ledger judges the write.
        let worked = lease.run_until_lost(async {
            sleep(work / 2).await;
            drop(contender.store.update(lease.grant(), &change).await);
            sleep(work / 2).await;
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
        // Without a pause, this contender would obtain the key again, since the store promises no fairness.
        sleep(part_of(&mut random, ttl)).await;
    }
}

fn part_of(random: &mut StdRng, length: Duration) -> Duration {
    length.mul_f64(random.random_range(0.0..1.0))
}
