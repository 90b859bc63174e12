#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod error;
mod name;
mod neighbour;
mod object;
mod register;

use lease_register::RegisterStore;

pub use builder::KubernetesRegisterBuilder;
pub use register::KubernetesRegister;

/// Stores leases in Kubernetes.
///
/// # Examples
///
/// ```no_run
/// use lease_core::Locker;
/// use lease_kubernetes::{KubernetesRegister, KubernetesStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let register = KubernetesRegister::connect("billing").await?;
/// let locker = Locker::new(KubernetesStore::new(register));
/// let lease = locker.wait_until_obtained(&"payroll".parse()?).await?;
/// println!("obtained with token {}", lease.token());
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
pub type KubernetesStore = RegisterStore<KubernetesRegister>;
