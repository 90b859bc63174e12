//! A job under simulated faults: paused processes, suspended machines, skewed clocks, and requests
//! that arrive late, twice or never.
//!
//! The example runs a correct job with 2,000 seeds in virtual time. With `-- --careless` the job
//! ignores the loss of its lease, and sends the largest token, which no gate refuses. The example
//! then prints the first seed that pays an invoice twice, with all its events.

use std::sync::Arc;
use std::time::Duration;

use lease_core::conformance::{Contender, SeedRange, SharedStore, Trial};
use lease_core::fence::Gate;
use lease_core::store::LockStore;
use lease_core::{FencingToken, Lease};
use lease_examples::print_line;
use lease_memory::MemoryStore;
use tokio::time::sleep;

type Book = Arc<Gate<Vec<usize>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Careful,
    Careless,
}

fn main() {
    let careless = std::env::args().any(|argument| argument == "--careless");
    let manner = if careless { Manner::Careless } else { Manner::Careful };

    let survey = SeedRange::fresh(2000).all_hold(|seed| {
        let book = Book::default();
        Trial::new(seed).run(
            |world| SharedStore::new(world, MemoryStore::new()),
            move |contender| pay(contender, Arc::clone(&book), manner),
        )
    });
    print_line(survey);
}

/// Obtains the lease, and pays the next invoices one after the other.
async fn pay<S: LockStore>(contender: Contender<S>, book: Book, manner: Manner) {
    let Ok(key) = "payroll".parse() else { return };
    loop {
        let Ok(lease) = contender.locker.wait_until_obtained(&key).await else { continue };
        // The trial compares the lease's actual end with its reported end from now on.
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
        // The book refuses the write if it has seen a larger token.
        let paid = book.write(token, |book| {
            let before = book.contains(&next);
            book.push(next);
            before
        });
        if paid == Ok(true) {
            let lessee = lease.lessee();
            contender.witness.ledger().violated(format!("{lessee} paid invoice {next} again"));
        }
    }
}
