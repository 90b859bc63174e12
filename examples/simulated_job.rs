//! A job of yours under faults that no test machine has: processes that stop for seconds, machines
//! that are suspended, clocks that disagree, requests that come late, twice or never.
//!
//! `cargo run --release -p lease-examples --example simulated_job` runs a careful job through 2,000
//! seeds in virtual time. With `-- --careless` it runs one that neither stops when its lease is
//! lost nor shows its token, and prints the first seed in which something is paid twice, with all
//! that led to it.

use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::{Contender, Seeds, SharedStore, Trial};
use lease_core::fence::Gate;
use lease_core::{FencingToken, Lease, LockStore};
use lease_examples::show;
use lease_memory::MemoryStore;
use tokio::time::sleep;

/// Which invoices were paid, in order.
type Book = Arc<Gate<Vec<usize>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Careful,
    Careless,
}

fn main() {
    let careless = std::env::args().any(|argument| argument == "--careless");
    let manner = if careless { Manner::Careless } else { Manner::Careful };

    let survey = Seeds::fresh(2000).all_hold(|seed| {
        let book = Book::default();
        Trial::new(seed).run(
            |world| SharedStore::new(world, MemoryStore::new()),
            move |contender| pay(contender, Arc::clone(&book), manner),
        )
    });
    show(survey);
}

/// The job: whoever has the lease pays the next invoices, one after the other.
async fn pay<S: LockStore>(contender: Contender<S>, book: Book, manner: Manner) {
    let Ok(key) = "payroll".parse() else { return };
    loop {
        let Ok(lease) = contender.locker.wait_until_obtained(&key).await else { continue };
        // From here on the trial sees when the lease ends, and when it says so.
        contender.witness.watch(&lease);
        let work = pay_some(&contender, &book, &lease, manner);
        match manner {
            Manner::Careful => drop(lease.run_until_lost(work).await),
            Manner::Careless => work.await,
        }
        drop(lease);
        sleep(Duration::from_millis(50)).await;
    }
}

async fn pay_some<S: LockStore>(
    contender: &Contender<S>,
    book: &Book,
    lease: &Lease,
    manner: Manner,
) {
    for _ in 0..10 {
        let next = book.read(Vec::len);
        sleep(Duration::from_millis(20)).await;
        let token = match manner {
            Manner::Careful => lease.token(),
            Manner::Careless => FencingToken::MAX,
        };
        // Refused, if somebody has shown a larger token meanwhile.
        let paid = book.write(token, |book| {
            let before = book.contains(&next);
            book.push(next);
            before
        });
        if paid == Ok(true) {
            let who = lease.lessee();
            contender.witness.ledger().violated(format!("{who} paid invoice {next} again"));
        }
    }
}
