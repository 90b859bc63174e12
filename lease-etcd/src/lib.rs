#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod connection;
mod error;
mod register;

use lease_register::RegisterStore;

pub use builder::EtcdRegisterBuilder;
pub use register::EtcdRegister;

/// Stores leases in etcd.
///
/// # Examples
///
/// ```no_run
/// use lease_core::Locker;
/// use lease_etcd::{EtcdRegister, EtcdStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let register = EtcdRegister::connect("http://localhost:2379").await?;
/// let locker = Locker::new(EtcdStore::new(register));
/// let lease = locker.wait_until_obtained(&"payroll/2026-11".parse()?).await?;
/// println!("obtained with token {}", lease.token());
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
pub type EtcdStore = RegisterStore<EtcdRegister>;
