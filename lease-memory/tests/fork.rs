//! Forked processes claim under different nonces.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::{Read, Write, pipe};
use std::process::exit;

use fork::{Fork, fork, waitpid};
use lease_core::Locker;
use lease_memory::MemoryStore;
use tokio::runtime::Builder;

fn nonce_of_child(locker: &Locker) -> String {
    let (mut reader, mut writer) = pipe().unwrap();
    match fork().unwrap() {
        Fork::Child => {
            let runtime = Builder::new_current_thread().enable_time().build().unwrap();
            let key = "job".parse().unwrap();
            let lease = runtime.block_on(locker.wait_until_obtained(&key)).unwrap();
            write!(writer, "{}", lease.grant().nonce).unwrap();
            exit(0)
        }
        Fork::Parent(child) => {
            drop(writer);
            waitpid(child).unwrap();
            let mut nonce = String::new();
            reader.read_to_string(&mut nonce).unwrap();
            nonce
        }
    }
}

fn main() {
    let locker = Locker::new(MemoryStore::new());

    let (one, other) = (nonce_of_child(&locker), nonce_of_child(&locker));

    assert_eq!(one.len(), 36, "the child should write its nonce");
    assert_ne!(one, other, "a store would treat the second claim as a repetition of the first");
}
