//! Tests the kit for registers: the register in memory keeps every promise, and each injected bug breaks exactly the
//! promises that cover it.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod sabotage;

use std::panic::{AssertUnwindSafe, catch_unwind};

use async_trait::async_trait;
use lease_core::LeaseKey;
use lease_register::conformance::{Fixture, MemoryRegister, register_promises};

use crate::sabotage::{Sabotage, Sabotaged};

/// Each promise has its own register.
struct InMemory(MemoryRegister);

#[async_trait]
impl Fixture for InMemory {
    type Register = MemoryRegister;

    async fn register(&self) -> MemoryRegister {
        self.0.clone()
    }

    async fn another(&self, register: &MemoryRegister) -> MemoryRegister {
        register.clone()
    }

    async fn delete(&self, register: &MemoryRegister, key: &LeaseKey) -> bool {
        register.delete(key);
        true
    }

    fn time_may_be_paused(&self) -> bool {
        true
    }
}

mod opaque {
    use super::*;

    lease_register::register_conformance!(InMemory(MemoryRegister::opaque()));
}

mod growing_with_dates {
    use super::*;

    lease_register::register_conformance!(InMemory(MemoryRegister::growing().with_dates()));
}

#[async_trait]
impl Fixture for Sabotage {
    type Register = Sabotaged;

    async fn register(&self) -> Sabotaged {
        Sabotaged::new(*self)
    }

    async fn another(&self, register: &Sabotaged) -> Sabotaged {
        register.another()
    }

    async fn delete(&self, register: &Sabotaged, key: &LeaseKey) -> bool {
        register.delete(key);
        true
    }

    fn time_may_be_paused(&self) -> bool {
        true
    }
}

/// Returns `None` if exactly the promises `broken` fail. Otherwise returns an error text.
fn breaks(sabotage: Sabotage, broken: &[&str]) -> Option<String> {
    // Broken promises panic, as expected. Printing these panics would hide an unexpected panic.
    std::panic::set_hook(Box::new(|_| ()));
    let failed: Vec<_> = register_promises::<Sabotage>()
        .iter()
        .filter(|promise| catch_unwind(AssertUnwindSafe(|| (promise.check)(sabotage))).is_err())
        .map(|promise| promise.name)
        .collect();
    drop(std::panic::take_hook());

    (failed != broken).then(|| format!("{sabotage:?} breaks {failed:?}, expected {broken:?}"))
}

macro_rules! sabotages {
    ($($sabotage:ident breaks $($promise:ident)*;)*) => {
        /// Injects all bugs in one test, because the panic hook belongs to the whole process.
        #[test]
        fn each_sabotage_breaks_its_own_promises_and_no_other() {
            let tried = [$(breaks(Sabotage::$sabotage, &[$(stringify!($promise)),*])),*];
            let wrong: Vec<_> = tried.into_iter().flatten().collect();
            assert!(wrong.is_empty(), "{wrong:#?}");
        }
    };
}

sabotages! {
    None breaks;
    ReadsBlankForAbsent breaks absent_key_is_read_as_absent replacement_of_deleted_record_conflicts;
    DropsTheExpiry breaks record_is_read_back_with_all_fields;
    CutsLargeRecords breaks large_record_is_read_back;
    IgnoresCase breaks every_valid_key_has_its_own_record list_has_every_key_of_its_prefix;
    CreatesOverRecords breaks
        existing_key_is_not_created
        one_of_two_creations_applies;
    ReplacesAbsentKeys breaks
        absent_key_has_no_version
        replacement_of_deleted_record_conflicts;
    AcceptsOldVersions breaks
        stale_replacement_never_applies
        repeated_replacement_conflicts
        replacement_of_deleted_record_conflicts
        one_of_two_replacements_applies;
    AppliesTwice breaks repeated_replacement_conflicts;
    NumbersRestartWithRecords breaks
        replacement_of_deleted_record_conflicts
        versions_never_come_back
        growing_versions_grow_over_deletion;
    VersionIsHashWithoutMark breaks
        stale_replacement_never_applies
        repeated_replacement_conflicts
        replacement_of_deleted_record_conflicts
        versions_never_come_back
        one_of_two_replacements_applies
        watch_wakes_on_replacement
        late_watch_wakes_at_once;
    AnswersAnotherVersion breaks
        repeated_replacement_conflicts
        version_of_write_is_read
        one_of_two_replacements_applies
        one_of_two_creations_applies
        list_is_not_older_than_finished_write
        list_has_every_key_of_its_prefix;
    VersionsShrink breaks growing_versions_grow growing_versions_grow_over_deletion;
    ChecksApart breaks one_of_two_replacements_applies one_of_two_creations_applies;
    ReadsFromACache breaks
        version_of_write_is_read
        read_is_not_older_than_finished_write;
    ListsFromACache breaks list_is_not_older_than_finished_write;
    ListsOnePage breaks list_has_every_key_of_its_prefix;
    ListsOtherPrefixes breaks list_has_every_key_of_its_prefix;
    WatchNeverWakes breaks
        watch_wakes_on_replacement
        watch_of_absent_key_wakes_on_creation
        watch_wakes_on_deletion
        late_watch_wakes_at_once;
    WatchMissesCreations breaks watch_of_absent_key_wakes_on_creation;
    WatchMissesDeletions breaks watch_wakes_on_deletion;
    WatchForgetsWhatWasSeen breaks late_watch_wakes_at_once;
    DatesNoAnswers breaks clock_is_known_after_a_read;
}
