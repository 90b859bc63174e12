//! Which lease the running code works under: finds code that waits for a lease of its own.

use crate::store::Grant;

tokio::task_local! {
    static CURRENT: Grant;
}

/// Runs `work` as the work of the holder of `grant`, so that code below it can ask for the
/// [`current_grant`].
///
/// A job's scheduler calls it. Code that obtains a key which its own caller holds would wait for ever,
/// or skip its work each time; it can detect that and return an error. Tasks that `work` spawns are
/// outside.
///
/// # Cancel safety
///
/// As safe as `work`.
///
/// # Examples
///
/// ```
/// use lease_core::Locker;
/// use lease_core::store::{current_grant, work_under};
/// use lease_memory::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let key = "payroll".parse()?;
/// let lease = Locker::new(MemoryStore::new()).wait_until_obtained(&key).await?;
///
/// let current = work_under(lease.grant().clone(), async { current_grant() }).await;
///
/// assert_eq!(current.as_ref(), Some(lease.grant()));
/// assert_eq!(current_grant(), None);
/// # Ok(())
/// # }
/// ```
pub async fn work_under<T>(grant: Grant, work: impl Future<Output = T>) -> T {
    CURRENT.scope(grant, work).await
}

/// The grant that this code works under; the innermost, if [`work_under`] is nested, and `None`
/// outside of it.
pub fn current_grant() -> Option<Grant> {
    CURRENT.try_with(Clone::clone).ok()
}
