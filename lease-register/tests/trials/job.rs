//! What a contender does: obtains or resumes a lease, writes under it, and gives it up in one of several ways.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_core::conformance::Contender;
use lease_core::store::LeaseTable;
use lease_core::{Change, HandOver, Handed, Lease, LeaseKey, StoreError, Ttl};
use lease_register::RegisterStore;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{sleep, timeout};

use crate::remote::Remote;

/// Hand-overs that no contender has resumed yet.
pub(crate) type Mail = Arc<Mutex<Vec<Offer>>>;

pub(crate) struct Offer {
    hand_over: HandOver,
    /// Until when no store may refuse the hand-over, in simulated time.
    until: Duration,
}

pub(crate) async fn contend(contender: Contender<RegisterStore<Remote>>, mail: Mail) {
    let mut random = StdRng::seed_from_u64(!contender.seed);
    let key: LeaseKey = "shared".parse().unwrap();
    let (locker, ttl) = (&contender.locker, contender.locker.options().ttl());
    let ledger = contender.witness.ledger();
    loop {
        let offer = mail.lock().unwrap().pop();
        let lease = match offer {
            Some(offer) => resume(&contender, offer).await,
            // Looks for hand-overs now and then.
            None => match timeout(ttl / 4, locker.wait_until_obtained(&key)).await {
                Ok(obtained) => obtained.map(Some),
                Err(_elapsed) => continue,
            },
        };
        let Ok(Some(lease)) = lease else { continue };
        contender.witness.watch(&lease);

        // Some leases end at once. A read that lags may then show an earlier lease.
        let is_short = random.random_bool(0.3);
        let work = part_of(&mut random, if is_short { Duration::ZERO } else { ttl * 4 });
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
                let (began, left) = (ledger.now(), lease.remaining());
                if let Ok(Handed::Over(hand_over)) = lease.hand_over(Ttl::clamped(wait)).await {
                    // Otherwise, a read that lags may show an absent key, or an earlier heartbeat that has expired.
                    let is_judged = began > ttl * 2 && ledger.now() + LAG * 2 < began + left;
                    let until = if is_judged { began + wait } else { Duration::ZERO };
                    mail.lock().unwrap().push(Offer { hand_over, until });
                }
            }
            _ => drop(lease),
        }
        // Without a pause, this contender would obtain the key again, since the store promises no fairness.
        sleep(part_of(&mut random, ttl)).await;
    }
}

/// Resumes a hand-over. A refusal of a hand-over that lasts is a violation.
async fn resume(
    contender: &Contender<RegisterStore<Remote>>,
    offer: Offer,
) -> Result<Option<Lease>, StoreError> {
    let (locker, ledger) = (&contender.locker, contender.witness.ledger());
    let (began, token) = (ledger.now(), offer.hand_over.token());
    let resumed = locker.resume(offer.hand_over).await;
    let now = ledger.now();
    // After a longer time, this contender may have adopted the grant without an answer, and lost it.
    let is_prompt = now < began + locker.options().ttl() / 2;
    if matches!(resumed, Ok(None)) && is_prompt && now < offer.until {
        ledger
            .violated(format!("{REFUSED}: token {token} could be resumed until {:?}", offer.until));
    }
    resumed
}

fn part_of(random: &mut StdRng, length: Duration) -> Duration {
    length.mul_f64(random.random_range(0.0..1.0))
}

/// The longest lag of reads in a trial that judges refusals.
pub(crate) const LAG: Duration = Duration::from_millis(50);

/// The beginning of a violation.
pub(crate) const REFUSED: &str = "hand-over refused";
