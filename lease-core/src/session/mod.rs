//! Sessions: leases that last as long as one lease, and need only its heartbeats.
//!
//! Start with [`Session`]. [`attempt`] claims a key under a session. [`membership`] keeps the state that the
//! claims of one session share. [`standing`] connects the cells of children with the cell of their session.

pub(crate) mod attempt;
pub(crate) mod membership;
pub(crate) mod standing;

use std::sync::Arc;

use crate::error::{StoreError, StoreErrorKind};
use crate::heartbeat::release::Released;
use crate::key::LeaseKey;
use crate::lease::Lease;
use crate::locker::Locker;
use crate::session::membership::Membership;

/// A lease, and a locker whose leases last as long as this lease.
///
/// A process that holds many keys, such as the owner of 10,000 shards, obtains them under one session. The
/// session sends one heartbeat per period for all of them. When the session is lost, all leases under it are
/// lost, by the same deadline. A session that is started again has a new token, so the leases of the former
/// session are lost, too.
///
/// Use it if one process holds the keys for long. A lease under a session differs from any other lease in
/// three ways:
///
/// - It has no ttl. If a claim or a release is not answered, a task repeats it until it is answered or the
///   session has ended. Meanwhile, the key may be held without a lease.
/// - It cannot be evicted. Evict the session.
/// - [`abandon`](Lease::abandon) keeps the key until the session has ended.
///
/// A write to the store under such a lease may be applied after the session has ended, as long as no lessee has
/// obtained the key since.
///
/// Dropping the session releases it, which ends all leases under it.
///
/// # Examples
///
/// ```
/// use lease_core::{Attempt, Locker, Session};
/// use lease_memory::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let session = Session::start(&Locker::new(store.clone()), &"workers/1".parse()?).await?;
///
/// let mut shards = Vec::new();
/// for number in 0..100 {
///     let shard = format!("shards/{number}").parse()?;
///     shards.extend(session.locker().obtain(&shard).await?.into_lease());
/// }
/// assert_eq!(shards.len(), 100); // all with the heartbeats of `session`
///
/// session.end().await?;
///
/// assert!(shards.iter().all(|shard| !shard.is_held()));
/// let other = Locker::new(store).obtain(&"shards/7".parse()?).await?;
/// assert!(matches!(other, Attempt::Obtained(_)));
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a session ends it: bind it to a name, since `let _ =` drops it"]
#[derive(Debug)]
pub struct Session {
    lease: Lease,
    locker: Locker,
}

impl Session {
    /// Waits without a limit until `key` is obtained, and starts a session on this lease.
    ///
    /// Choose one key per process, such as `workers/host-7`. The session has the lessee and the options of
    /// `locker`.
    ///
    /// # Errors
    ///
    /// As for [`Locker::wait_until_obtained`] and [`Locker::under`].
    ///
    /// # Cancel safety
    ///
    /// Safe: a key that was obtained is released.
    pub async fn start(locker: &Locker, key: &LeaseKey) -> Result<Self, StoreError> {
        let lease = locker.wait_until_obtained(key).await?;
        let locker = locker.under(&lease)?;
        Ok(Self { lease, locker })
    }

    /// The locker that obtains leases under this session.
    pub fn locker(&self) -> &Locker {
        &self.locker
    }

    /// The lease of the session itself. [`Lease::lost`] reports its loss, and [`Lease::state`] its state.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Stops the heartbeats of the session without a release, as a crash does. All leases under it are lost at
    /// once. Their keys are free again when the ttl of the session has passed.
    pub fn abandon(self) {
        self.lease.abandon();
    }

    /// Ends the session, and all leases under it, with one request.
    ///
    /// The leases are no longer held from the first poll on. So first stop all work under them.
    ///
    /// # Errors
    ///
    /// If it is unknown whether the session has ended. The session has ended when its ttl has passed.
    ///
    /// # Cancel safety
    ///
    /// Safe: a task still ends the session.
    pub async fn end(self) -> Result<Released, StoreError> {
        self.lease.release().await
    }
}

impl Locker {
    /// Returns a locker that obtains leases under `session`. Its leases last as long as `session`, and send no
    /// heartbeats. `session` is a lease that a locker on the same store has obtained.
    ///
    /// [`Session`] describes the differences from other leases. All waits of this locker race for their keys.
    /// The locker [resumes](Self::resume) a hand-over as a separate lease, with heartbeats. Once `session` has
    /// ended, all attempts return [`Refused`](StoreErrorKind::Refused).
    ///
    /// [`close`](Self::close) also waits for unanswered claims and releases under `session`, for as long as
    /// `session` is held.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](StoreErrorKind::Unsupported), if the store keeps no sessions.
    /// [`Misconfigured`](StoreErrorKind::Misconfigured), if `session` is itself under a session.
    pub fn under(&self, session: &Lease) -> Result<Self, StoreError> {
        if self.settings.store.sessions().is_none() {
            let text = "this store cannot keep leases under a session";
            return Err(StoreError::new(StoreErrorKind::Unsupported, text));
        }
        if session.grant().parent.is_some() {
            let text = "a lease under a session cannot be a session";
            return Err(StoreError::new(StoreErrorKind::Misconfigured, text));
        }
        let membership = Arc::new(Membership::new(Arc::clone(&session.cell)));
        Ok(self.with(|settings| settings.session = Some(membership)))
    }
}
