//! The kit proves itself: a sound store is broken in one way, and exactly that promise fails.

#![expect(clippy::unwrap_used, reason = "a saboteur that fails is a test that fails")]

mod leases;
mod records;
mod saboteur;

use std::panic::{AssertUnwindSafe, catch_unwind};

use lease_core::conformance::{lock_promises, table_promises};

use crate::saboteur::Sabotage;

/// Fails unless the promise `broken` fails, and no other.
fn breaks(sabotage: Sabotage, broken: &str) {
    // Broken promises panic, as expected: their reports would drown the one that matters.
    std::panic::set_hook(Box::new(|_| ()));
    let promises = lock_promises::<Sabotage>().into_iter().chain(table_promises());
    let failed: Vec<_> = promises
        .filter(|promise| catch_unwind(AssertUnwindSafe(|| (promise.hold)(sabotage))).is_err())
        .map(|promise| promise.name)
        .collect();
    drop(std::panic::take_hook());

    assert_eq!(failed, [broken], "{sabotage:?}");
}

macro_rules! sabotages {
    ($($sabotage:ident breaks $promise:ident;)*) => {
        /// One after the other: the panic hook is the whole process'.
        #[test]
        fn each_sabotage_breaks_its_own_promise_and_no_other() {
            $(breaks(Sabotage::$sabotage, stringify!($promise));)*
        }
    };
}

sabotages! {
    GrantsTwice breaks a_held_key_is_granted_to_nobody_else;
    GrantsOneLesseeTwice breaks one_lessee_is_not_granted_a_key_twice;
    ForgetsTheToken breaks tokens_grow_over_releases;
    ForgetsTheTokenOnExpiry breaks tokens_grow_over_expiry;
    KeepsTheTokenOnAdoption breaks tokens_grow_over_adoption;
    IgnoresTheNonceOnRelease breaks a_release_by_a_former_holder_changes_nothing;
    RegrantsAReleasedNonce breaks a_released_nonce_is_not_granted_again;
    HeartbeatIgnoresItsTtl breaks a_heartbeat_lasts_as_long_as_its_own_ttl;
    LateHeartbeatShortens breaks a_late_heartbeat_does_not_shorten;
    LateHeartbeatIsCalledALoss breaks a_late_heartbeat_is_overtaken;
    HeartbeatRevives breaks a_heartbeat_does_not_revive_what_has_expired;
    ExtendsOnRepeatedClaim breaks a_repeated_claim_does_not_extend;
    AdoptsTwice breaks a_grant_is_adopted_at_most_once;
    AdoptsWhatWasReleased breaks a_released_grant_is_not_adopted;
    IgnoresReservations breaks a_reserved_key_is_granted_to_nobody_for_its_time;
    ReleasesInSilence breaks a_watch_wakes_on_release;
    UpdateIsNotFenced breaks an_update_by_a_former_holder_changes_nothing;
    UpdateIgnoresTheToken breaks an_update_under_an_earlier_token_changes_nothing;
    UpdateExtends breaks an_update_does_not_extend;
    TransfersToItself breaks a_transferred_key_is_free_for_one_lessee_alone;
    DeleteIsNotFenced breaks a_delete_by_a_former_holder_changes_nothing;
    CreateOverwrites breaks a_record_is_created_once;
    ListsOtherPrefixes breaks a_list_has_every_record_of_its_prefix;
    EvictsByKeyAlone breaks an_eviction_by_another_token_changes_nothing;
    EvictionFreesAtOnce breaks an_evicted_lease_runs_out_and_not_before;
    AdoptsWhatWasEvicted breaks an_evicted_grant_is_not_adopted;
    TellsOfExpiredHolders breaks an_expired_key_has_no_holder;
    AdoptionKeepsTheOldExpiry breaks an_adoption_lasts_for_its_own_ttl;
    AdoptionForgetsAttributes breaks attributes_are_told_to_who_adopts;
    UpdatesWhatHasExpired breaks an_update_after_expiry_changes_nothing;
    ExpectsTheFirstAlone breaks an_update_that_expects_another_value_changes_nothing;
    ExpectsTextAlone breaks every_type_of_attribute_can_be_expected;
    IgnoresWhatIsExpectedAbsent breaks an_absent_attribute_can_be_expected;
    RepeatsWhatItHasApplied breaks a_late_update_does_not_undo_a_newer_one;
    TellsTheUnexpectedFirst breaks a_lost_grant_is_told_before_what_was_unexpected;
    TransfersInSilence breaks a_watch_wakes_on_transfer;
    BatchHasAnEnd breaks many_heartbeats_are_each_answered_once;
}
