//! The program of the README: obtain a lease, write under its token, release it.
#![expect(clippy::print_stdout, reason = "the example shows its result")]

use lease_core::{Locker, fence::Gate};
use lease_memory::MemoryStore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locker = Locker::new(MemoryStore::new());
    let ledger = Gate::new(Vec::new()); // represents your database

    let lease = locker.wait_until_obtained(&"payroll".parse()?).await?;
    let pay = async { ledger.write(lease.token(), |paid| paid.push("Ada Lovelace")) };
    lease.run_until_lost(pay).await??; // a loss cancels `pay`; the gate refuses late writes
    lease.release().await?;

    println!("paid: {:?}", ledger.into_inner());
    Ok(())
}
