//! The grant under which the running code works.

use crate::store::Grant;

tokio::task_local! {
    static CURRENT: Grant;
}

/// Runs `work` under `grant`, so that the code of `work` can read the [`current_grant`].
///
/// Code that claims the key under which it runs would wait for ever. Tasks that `work` spawns do not
/// inherit the grant.
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

/// Returns the grant under which the calling code works; `None` outside of [`work_under`]. In
/// nested calls, the innermost grant counts.
pub fn current_grant() -> Option<Grant> {
    CURRENT.try_with(Clone::clone).ok()
}
