//! Tests for stores: one macro call makes one test per promise of the store traits.
//!
//! Enable the feature `conformance` in a dev-dependency.
//!
//! A store's whole conformance test is a [`Fixture`] and two lines:
//!
//! ```
//! use async_trait::async_trait;
//! use lease_core::conformance::{Fixture, Reopened};
//! use lease_memory::MemoryStore; // yours
//!
//! struct Fresh;
//!
//! #[async_trait]
//! impl Fixture for Fresh {
//!     type Store = MemoryStore;
//!
//!     async fn store(&self) -> MemoryStore {
//!         MemoryStore::new()
//!     }
//!
//!     /// Only clones of a memory store share its leases.
//!     async fn another(&self, store: &MemoryStore) -> MemoryStore {
//!         store.clone()
//!     }
//!
//!     /// Leases in memory end with the process.
//!     async fn reopen(&self, store: MemoryStore) -> Reopened<MemoryStore> {
//!         drop(store);
//!         Reopened::Empty(MemoryStore::new())
//!     }
//! }
//!
//! lease_core::conformance!(Fresh);
//! lease_core::table_conformance!(Fresh); // if it is a `LeaseTable`, too
//! # fn main() {}
//! ```
//!
//! If other processes can reach the store's data, `another` must open the data again. A clone
//! shares locks and caches, which can hide that a check and a write are two steps.
//!
//! ```ignore
//! /// Leases in a file. Each test has its own fixture, and so its own file.
//! struct OnFile {
//!     directory: tempfile::TempDir,
//! }
//!
//! #[async_trait]
//! impl Fixture for OnFile {
//!     type Store = FileStore;
//!
//!     async fn store(&self) -> FileStore {
//!         FileStore::open(self.directory.path().join("leases")).await.unwrap()
//!     }
//!
//!     async fn another(&self, _store: &FileStore) -> FileStore {
//!         self.store().await // the same file through a second connection
//!     }
//!
//!     async fn reopen(&self, store: FileStore) -> Reopened<FileStore> {
//!         drop(store); // or its `close`, if it has one
//!         Reopened::Intact(self.store().await)
//!     }
//! }
//! ```

mod kit;
mod trial;

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;

pub use kit::case::Case;
pub use kit::faulty::{Call, Fault, Faulty};
#[doc(hidden)]
pub use kit::promises;
pub use trial::ledger::{Event, Figures, Ledger, Violation};
pub use trial::network_faults::{NetworkFaults, Silence};
pub use trial::plan::{ClientContext, Contender, Model, ModelContext, Trial};
pub use trial::seed_range::{SeedRange, Survey};
pub use trial::shared_store::{RecordingStore, SharedStore};
pub use trial::simulation::{ProcessId, Simulation, WorldTime};
pub use trial::verdict::Verdict;
pub use trial::witness::Witness;

pub use crate::clock::SkewedClock;
use crate::store::lock_store::LockStore;

/// Makes the stores under test, and advances their time.
#[async_trait]
pub trait Fixture: Send + Sync + Sized + 'static {
    /// The store under test.
    type Store: LockStore;

    /// Makes a store without leases. The fixture keeps everything that must last as long as the store, such
    /// as a server.
    async fn store(&self) -> Self::Store;

    /// Opens the data of `store` a second time, as another process would. Tests use both handles at once,
    /// from several threads. Return a clone only if the data of the store cannot leave the process.
    async fn another(&self, store: &Self::Store) -> Self::Store;

    /// Closes `store`, and opens its data again as a restarted process does. If the store's data
    /// end with the process, return [`Reopened::Empty`].
    async fn reopen(&self, store: Self::Store) -> Reopened<Self::Store>;

    /// Lets `time` pass for the stores. The default sleeps.
    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// The ttl of leases in the tests. The default is 2 s.
    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// The ttl of leases and reservations that must outlast a promise, even on a slow store. The
    /// default is an hour.
    fn long_ttl(&self) -> Duration {
        Duration::from_secs(3600)
    }

    /// Whether the store refuses a late duplicate of a claim whose grant was released. The default is true.
    ///
    /// If false, a late duplicate may hold the key for at most one ttl.
    fn remembers_released_nonces(&self) -> bool {
        true
    }

    /// Whether the store grants a repeated claim anew, under a new token. The default is false.
    ///
    /// If true, the store refuses heartbeats of the earlier grant.
    fn grants_repeated_claims_anew(&self) -> bool {
        false
    }

    /// Whether the store uses tokio's time, so that the tests may pause time. The default is false.
    fn time_may_be_paused(&self) -> bool {
        false
    }
}

/// A store after [`Fixture::reopen`]. In both cases, new tokens must be larger than all earlier tokens.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "data outlive their process, or end with it")]
pub enum Reopened<S> {
    /// The store must have kept all its data.
    Intact(S),
    /// The data ended with the process: the store must have no lease.
    Empty(S),
}

/// One promise, for callers that run promises without the macros.
#[non_exhaustive]
pub struct Promise<F> {
    /// The name of the promise, as failures report it.
    pub name: &'static str,
    /// Runs the promise, and panics if it is broken.
    pub check: fn(F),
}

impl<F> std::fmt::Debug for Promise<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Promise").field(&self.name).finish()
    }
}

/// Runs one promise on a new runtime, in paused time if the fixture allows it.
///
/// # Panics
///
/// If the promise is broken.
pub fn check<F: Fixture, P: Future<Output = ()>>(fixture: F, promise: impl FnOnce(Case<F>) -> P) {
    #[expect(clippy::expect_used, reason = "a test without a runtime has failed")]
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(fixture.time_may_be_paused())
        .build()
        .expect("a runtime for the test");
    runtime.block_on(async { promise(Case::new(fixture).await).await });
}

/// Calls `$then!` with `$with` and every promise of a [`LockStore`](crate::store::LockStore).
#[doc(hidden)]
#[macro_export]
macro_rules! __lock_promises {
    ($then:path, $($with:tt)*) => {
        $then! {
            [$($with)*]
            granting::free_key_is_granted
            granting::claims_of_several_keys_at_once_are_each_answered
            granting::held_key_is_granted_to_no_other_lessee
            granting::lessee_is_not_granted_a_key_twice
            granting::repeated_claim_is_granted_again
            granting::repeated_claim_does_not_extend
            granting::spent_claim_is_refused_in_its_own_name
            granting::expired_key_is_granted_again
            granting::held_key_shows_its_holder
            granting::expired_key_has_no_holder
            granting::free_key_has_no_holder
            granting::keys_do_not_disturb_each_other
            granting::attributes_of_claim_are_set_or_refused
            granting::tokens_grow_over_releases
            granting::tokens_grow_over_expiry
            granting::tokens_grow_over_adoption
            heartbeats::heartbeat_extends
            heartbeats::heartbeat_lasts_as_long_as_its_own_ttl
            heartbeats::late_heartbeat_does_not_shorten
            heartbeats::late_heartbeat_is_overtaken
            heartbeats::heartbeat_does_not_revive_expired_lease
            heartbeats::heartbeat_after_release_is_lost
            heartbeats::heartbeat_by_former_holder_is_lost
            heartbeats::heartbeats_count_from_each_grant
            heartbeats::heartbeats_count_from_each_adoption
            heartbeats::many_heartbeats_are_each_answered_once
            releasing::released_key_is_free_at_once
            releasing::release_by_former_holder_changes_nothing
            releasing::second_release_is_harmless
            releasing::released_nonce_is_not_granted_again
            releasing::reserved_key_is_not_granted_before_its_time
            releasing::reserved_key_has_no_holder
            releasing::watch_wakes_on_release
            adopting::grant_is_adopted
            adopting::adoption_lasts_for_its_own_ttl
            adopting::grant_is_adopted_at_most_once
            adopting::repeated_adoption_is_granted_again
            adopting::adopted_grant_is_lost_to_its_former_holder
            adopting::released_grant_is_not_adopted
            adopting::expired_grant_is_not_adopted
            handles::claims_through_two_handles_grant_one
            handles::adoptions_through_two_handles_grant_one
            handles::release_through_second_handle_is_final
            handles::grant_is_seen_through_second_handle
            handles::tokens_grow_across_handles
            handles::released_nonce_is_refused_through_second_handle
            handles::late_heartbeat_through_second_handle_is_overtaken
            handles::takeover_through_second_handle_ends_first_grant
            handles::watch_wakes_on_release_through_second_handle
            handles::eviction_through_second_handle_ends_lease
            handles::scan_lists_grants_of_second_handle
            reopening::held_key_stays_held_after_reopening
            reopening::tokens_grow_after_reopening
            reopening::released_nonce_is_refused_after_reopening
            reopening::reserved_key_stays_reserved_after_reopening
            reopening::late_heartbeat_is_overtaken_after_reopening
            reopening::evicted_lease_stays_evicted_after_reopening
            operating::evicted_lease_is_lost_at_its_next_heartbeat
            operating::evicted_lease_expires_by_its_ttl
            operating::evicted_grant_is_not_adopted
            operating::eviction_of_another_grant_changes_nothing
            operating::scan_lists_held_keys_of_its_prefix
            queueing::waiters_are_granted_in_order_of_arrival
            queueing::plain_claim_does_not_overtake_a_waiter
            queueing::place_that_is_not_renewed_is_skipped
            queueing::renewed_place_is_kept
            queueing::waiter_that_left_is_skipped
            queueing::leaving_passes_a_granted_key_on
            queueing::grant_names_the_last_request_of_its_waiter
            queueing::expired_key_is_granted_to_its_first_waiter
            queueing::late_enqueue_holds_the_key_for_at_most_a_ttl
            queueing::renewal_without_a_place_gets_none
            sessions::lease_under_session_outlasts_its_ttl
            sessions::session_that_is_held_is_not_ended
            sessions::end_of_expired_session_is_written
            sessions::released_session_has_ended
            sessions::key_of_ended_session_is_granted_with_its_proof
            sessions::proof_of_another_session_grants_nothing
            sessions::claim_that_has_seen_a_smaller_token_is_refused
            sessions::repeated_claim_under_session_is_granted_again
            sessions::release_of_earlier_lease_under_session_changes_nothing
            sessions::lease_under_session_is_not_evicted
            sessions::heartbeat_takes_lease_out_of_its_session
            sessions::claim_refused_after_late_hand_over_stays_refused
            sessions::reserved_key_shows_its_reservation
            sessions::records_of_several_keys_are_read_in_order
            sessions::count_adds_one
            keeping::lost_reply_to_obtain_is_recognised
            keeping::lost_reply_to_release_is_no_error
            keeping::one_failed_heartbeat_is_no_loss
            keeping::hanging_store_does_not_delay_loss
            keeping::failing_store_does_not_delay_loss
            keeping::dropped_attempt_leaves_key_free
            keeping::dropped_lease_leaves_key_free
            keeping::doubled_request_changes_nothing
            keeping::lease_outlives_its_ttl_with_heartbeats
            keeping::waiter_obtains_released_key
            keeping::handed_over_lease_is_resumed
        }
    };
}

/// Calls `$then!` with `$with` and every promise of a [`LeaseTable`](crate::store::LeaseTable).
#[doc(hidden)]
#[macro_export]
macro_rules! __table_promises {
    ($then:path, $($with:tt)*) => {
        $then! {
            [$($with)*]
            table::created_record_is_read_back
            table::record_is_created_once
            table::held_record_shows_its_holder
            table::attributes_survive_a_lease
            table::obtain_returns_attributes
            table::adoption_returns_attributes
            table::every_type_of_attribute_is_read_back
            claiming::attributes_of_claim_are_set_with_grant
            claiming::record_lasts_after_claim_with_attributes
            claiming::refused_claim_sets_no_attributes
            claiming::repeated_claim_does_not_undo_update
            claiming::attributes_of_adopting_claim_are_set_with_grant
            claiming::refused_adoption_sets_no_attributes
            claiming::repeated_adoption_does_not_undo_update
            updating::update_changes_only_the_named_attributes
            updating::update_by_former_holder_changes_nothing
            updating::update_under_an_earlier_token_changes_nothing
            updating::update_after_expiry_changes_nothing
            updating::update_does_not_extend
            updating::update_that_expects_another_value_changes_nothing
            updating::every_type_of_attribute_can_be_expected
            updating::absent_attribute_can_be_expected
            updating::late_update_does_not_undo_a_newer_one
            updating::lost_grant_is_reported_before_unexpected_value
            table::list_has_every_record_of_its_prefix
            transferring::transferred_key_is_granted_only_to_its_lessee
            transferring::transferred_key_has_no_holder
            transferring::transferred_key_is_free_after_its_reservation
            transferring::transfer_by_former_holder_changes_nothing
            transferring::watch_wakes_on_transfer
            transferring::deleted_record_is_gone
            transferring::tokens_grow_over_delete
            transferring::delete_by_former_holder_changes_nothing
            sessions::update_under_earlier_lease_of_session_changes_nothing
            table_handles::creates_through_two_handles_make_one_record
            table_handles::updates_through_two_handles_apply_one
            reopening::attributes_are_read_back_after_reopening
            operating::holder_of_record_is_evicted
            operating::scan_lists_holders_of_records
        }
    };
}

/// Makes tests of `$fixture`, one for each promise listed.
#[doc(hidden)]
#[macro_export]
macro_rules! __promise_tests {
    ([$fixture:expr] $($room:ident :: $name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::check($fixture, $crate::conformance::promises::$room::$name);
            }
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __promise_list {
    ([$fixture:ty] $($room:ident :: $name:ident)*) => {
        vec![$(
            $crate::conformance::Promise::<$fixture> {
                name: stringify!($name),
                check: |fixture| $crate::conformance::check(
                    fixture,
                    $crate::conformance::promises::$room::$name,
                ),
            },
        )*]
    };
}

/// Makes one test for each promise of a [`LockStore`](crate::store::LockStore). The expression
/// makes the [`Fixture`] of each test. Use the macro once per module.
#[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
#[macro_export]
macro_rules! conformance {
    ($fixture:expr) => {
        $crate::__lock_promises! { $crate::__promise_tests, $fixture }
    };
}

/// Makes one test for each promise of a [`LeaseTable`](crate::store::LeaseTable). The expression
/// makes the [`Fixture`] of each test. Use the macro once per module, along with
/// [`conformance!`](crate::conformance!).
#[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
#[macro_export]
macro_rules! table_conformance {
    ($fixture:expr) => {
        $crate::__table_promises! { $crate::__promise_tests, $fixture }
    };
}

/// Returns every promise of a [`LockStore`].
pub fn lock_promises<F: Fixture>() -> Vec<Promise<F>> {
    crate::__lock_promises! { crate::__promise_list, F }
}

/// Returns every promise of a [`LeaseTable`](crate::store::LeaseTable).
pub fn table_promises<F: Fixture>() -> Vec<Promise<F>>
where
    F::Store: crate::store::lease_table::LeaseTable,
{
    crate::__table_promises! { crate::__promise_list, F }
}
