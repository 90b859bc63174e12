//! The shortest program that does everything right: it is the one in the README.
#![expect(clippy::print_stdout, reason = "this is what the example shows")]

use lease_core::{Locker, fence::Gate};
use lease_memory::MemoryStore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locker = Locker::new(MemoryStore::new());
    let ledger = Gate::new(Vec::new()); // stands for your database

    let lease = locker.wait_until_obtained(&"payroll".parse()?).await?;
    let pay = async { ledger.write(lease.token(), |paid| paid.push("Ada Lovelace")) };
    lease.run_until_lost(pay).await??; // stopped when the lease is lost, refused when it is late
    lease.release().await?;

    println!("paid: {:?}", ledger.into_inner());
    Ok(())
}
