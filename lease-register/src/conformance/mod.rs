//! For tests: a kit that judges a register by itself, and a register in memory.
//!
//! A register's whole test is a [`Fixture`] and two lines. The second line judges the store on the register by the
//! kit of lease-core: see [`lease_core::conformance`](mod@lease_core::conformance).
//!
//! ```
//! use async_trait::async_trait;
//! use lease_register::conformance::{Fixture, MemoryRegister};
//!
//! struct Fresh;
//!
//! #[async_trait]
//! impl Fixture for Fresh {
//!     type Register = MemoryRegister; // yours
//!
//!     async fn register(&self) -> MemoryRegister {
//!         MemoryRegister::growing()
//!     }
//!
//!     /// Only clones of a register in memory share its records.
//!     async fn another(&self, register: &MemoryRegister) -> MemoryRegister {
//!         register.clone()
//!     }
//! }
//!
//! lease_register::register_conformance!(Fresh);
//! # fn main() {}
//! ```
//!
//! The kit is tested, too: this crate's tests break a register in one way at a time, and check that exactly the
//! matching promises fail.

mod case;
mod memory;
#[doc(hidden)]
pub mod promises;

use std::fmt;
use std::future::Future;

use async_trait::async_trait;
use lease_core::LeaseKey;

use crate::register::Register;

pub use case::Case;
pub use memory::MemoryRegister;

/// Makes the registers under test.
#[async_trait]
pub trait Fixture: Send + Sync + Sized + 'static {
    /// The register under test.
    type Register: Register;

    /// Makes a register without keys. Each test has its own fixture.
    async fn register(&self) -> Self::Register;

    /// Opens the data of `register` a second time, as another process would.
    async fn another(&self, register: &Self::Register) -> Self::Register;

    /// Deletes the record of `key` by hand, as an operator would. Returns false if the fixture cannot.
    async fn delete(&self, register: &Self::Register, key: &LeaseKey) -> bool {
        let _ = (register, key);
        false
    }

    /// Whether the register uses tokio's time, so that the tests may pause time. The default is false.
    fn time_may_be_paused(&self) -> bool {
        false
    }
}

/// One promise, for callers that run promises without the macro.
#[non_exhaustive]
pub struct Promise<F> {
    /// The name of the promise, as failures report it.
    pub name: &'static str,
    /// Runs the promise, and panics if it is broken.
    pub check: fn(F),
}

impl<F> fmt::Debug for Promise<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Promise").field(&self.name).finish()
    }
}

/// Runs one promise on a new runtime.
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

/// Calls `$then!` with `$with` and every promise of a [`Register`].
#[doc(hidden)]
#[macro_export]
macro_rules! __register_promises {
    ($then:path, $($with:tt)*) => {
        $then! {
            [$($with)*]
            absent_key_is_read_as_absent
            record_is_read_back_with_all_fields
            large_record_is_read_back
            every_valid_key_has_its_own_record
            existing_key_is_not_created
            absent_key_has_no_version
            stale_replacement_never_applies
            repeated_replacement_conflicts
            replacement_of_deleted_record_conflicts
            versions_never_come_back
            version_of_write_is_read
            growing_versions_grow
            growing_versions_grow_over_deletion
            one_of_two_replacements_applies
            one_of_two_creations_applies
            read_is_not_older_than_finished_write
            list_is_not_older_than_finished_write
            list_has_every_key_of_its_prefix
            watch_wakes_on_replacement
            watch_of_absent_key_wakes_on_creation
            watch_wakes_on_deletion
            late_watch_wakes_at_once
            clock_is_known_after_a_read
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __register_promise_tests {
    ([$fixture:expr] $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::check($fixture, $crate::conformance::promises::$name);
            }
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __register_promise_list {
    ([$fixture:ty] $($name:ident)*) => {
        vec![$(
            $crate::conformance::Promise::<$fixture> {
                name: stringify!($name),
                check: |fixture| {
                    $crate::conformance::check(fixture, $crate::conformance::promises::$name);
                },
            },
        )*]
    };
}

/// Makes one test for each promise of a [`Register`]. The expression makes the [`Fixture`] of each test.
///
/// Use it once per module. Needs the feature `conformance`.
#[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
#[macro_export]
macro_rules! register_conformance {
    ($fixture:expr) => {
        $crate::__register_promises! { $crate::__register_promise_tests, $fixture }
    };
}

/// Returns every promise of a [`Register`].
pub fn register_promises<F: Fixture>() -> Vec<Promise<F>> {
    crate::__register_promises! { crate::__register_promise_list, F }
}
