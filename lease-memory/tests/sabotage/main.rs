//! The kit proves itself: a sound store is broken in one way, and exactly the promises fail that
//! name it.

#![expect(clippy::unwrap_used, reason = "a saboteur that fails is a test that fails")]

mod apart;
mod leases;
mod records;
mod saboteur;

use std::panic::{AssertUnwindSafe, catch_unwind};

use lease_core::LeaseTable;
use lease_core::conformance::{Fixture, lock_promises, table_promises};

use crate::apart::Apart;
use crate::saboteur::Sabotage;

/// What is wrong, unless the promises `broken` fail, and no others.
fn breaks<F>(sabotage: F, broken: &[&str]) -> Option<String>
where
    F: Fixture<Store: LeaseTable> + Copy + std::fmt::Debug,
{
    // Broken promises panic, as expected: their reports would drown the one that matters.
    std::panic::set_hook(Box::new(|_| ()));
    let promises = lock_promises::<F>().into_iter().chain(table_promises());
    let failed: Vec<_> = promises
        .filter(|promise| catch_unwind(AssertUnwindSafe(|| (promise.hold)(sabotage))).is_err())
        .map(|promise| promise.name)
        .collect();
    drop(std::panic::take_hook());

    (failed != broken).then(|| format!("{sabotage:?} breaks {failed:?}, and not {broken:?}"))
}

macro_rules! sabotages {
    ($($kind:ident :: $sabotage:ident breaks $($promise:ident)*;)*) => {
        /// One after the other: the panic hook is the whole process'.
        #[test]
        fn each_sabotage_breaks_its_own_promises_and_no_other() {
            let tried = [$(breaks($kind::$sabotage, &[$(stringify!($promise)),*])),*];
            let wrong: Vec<_> = tried.into_iter().flatten().collect();
            assert!(wrong.is_empty(), "{wrong:#?}");
        }
    };
}

/// Its steps never await, so requests alternate on two threads alone, and in real time.
#[test]
fn two_blocking_steps_are_found_on_two_threads() {
    let promises = lock_promises::<Apart>();
    let name = "claims_through_two_handles_grant_one";
    let promise = promises.iter().find(|promise| promise.name == name).unwrap();

    let held = catch_unwind(|| (promise.hold)(Apart::ObtainsInTwoBlockingSteps));

    let panicked = held.unwrap_err();
    let text = panicked.downcast_ref::<String>().unwrap();
    assert!(text.contains("in one atomic step"), "{text}");
}

sabotages! {
    Sabotage::GrantsTwice breaks
        a_held_key_is_granted_to_nobody_else
        claims_through_two_handles_grant_one
        grant_is_seen_through_second_handle
        held_key_stays_held_after_reopening;
    Sabotage::GrantsOneLesseeTwice breaks one_lessee_is_not_granted_a_key_twice;
    Sabotage::ForgetsTheToken breaks
        tokens_grow_over_releases
        tokens_grow_across_handles
        tokens_grow_after_reopening;
    Sabotage::ForgetsTheTokenOnExpiry breaks tokens_grow_over_expiry;
    Sabotage::KeepsTheTokenOnAdoption breaks tokens_grow_over_adoption;
    Sabotage::IgnoresTheNonceOnRelease breaks a_release_by_a_former_holder_changes_nothing;
    Sabotage::RegrantsAReleasedNonce breaks
        a_released_nonce_is_not_granted_again
        released_nonce_is_refused_through_second_handle
        released_nonce_is_refused_after_reopening;
    Sabotage::HeartbeatIgnoresItsTtl breaks a_heartbeat_lasts_as_long_as_its_own_ttl;
    Sabotage::LateHeartbeatShortens breaks a_late_heartbeat_does_not_shorten;
    Sabotage::LateHeartbeatIsCalledALoss breaks
        a_late_heartbeat_is_overtaken
        late_heartbeat_through_second_handle_is_overtaken
        late_heartbeat_is_overtaken_after_reopening;
    Sabotage::HeartbeatRevives breaks a_heartbeat_does_not_revive_what_has_expired;
    Sabotage::ExtendsOnRepeatedClaim breaks
        a_repeated_claim_does_not_extend
        held_key_stays_held_after_reopening;
    Sabotage::AdoptsTwice breaks
        a_grant_is_adopted_at_most_once
        adoptions_through_two_handles_grant_one;
    Sabotage::AdoptsWhatWasReleased breaks a_released_grant_is_not_adopted;
    Sabotage::IgnoresReservations breaks
        a_reserved_key_is_granted_to_nobody_for_its_time
        reserved_key_has_no_holder
        reserved_key_stays_reserved_after_reopening;
    Sabotage::ReleasesInSilence breaks
        a_watch_wakes_on_release
        watch_wakes_on_release_through_second_handle;
    Sabotage::UpdateIsNotFenced breaks an_update_by_a_former_holder_changes_nothing;
    Sabotage::UpdateIgnoresTheToken breaks an_update_under_an_earlier_token_changes_nothing;
    Sabotage::UpdateExtends breaks an_update_does_not_extend;
    Sabotage::TransfersToItself breaks a_transferred_key_is_free_for_one_lessee_alone;
    Sabotage::DeleteIsNotFenced breaks a_delete_by_a_former_holder_changes_nothing;
    Sabotage::CreateOverwrites breaks a_record_is_created_once;
    Sabotage::ListsOtherPrefixes breaks a_list_has_every_record_of_its_prefix;
    Sabotage::EvictsByKeyAlone breaks an_eviction_by_another_token_changes_nothing;
    Sabotage::EvictionFreesAtOnce breaks an_evicted_lease_runs_out_and_not_before;
    Sabotage::AdoptsWhatWasEvicted breaks an_evicted_grant_is_not_adopted;
    Sabotage::TellsOfExpiredHolders breaks an_expired_key_has_no_holder;
    Sabotage::AdoptionKeepsTheOldExpiry breaks
        heartbeats_count_from_each_adoption
        an_adoption_lasts_for_its_own_ttl;
    Sabotage::AdoptionForgetsAttributes breaks attributes_are_told_to_who_adopts;
    Sabotage::UpdatesWhatHasExpired breaks an_update_after_expiry_changes_nothing;
    Sabotage::ExpectsTheFirstAlone breaks an_update_that_expects_another_value_changes_nothing;
    Sabotage::ExpectsTextAlone breaks every_type_of_attribute_can_be_expected;
    Sabotage::IgnoresWhatIsExpectedAbsent breaks
        an_absent_attribute_can_be_expected
        updates_through_two_handles_apply_one;
    Sabotage::RepeatsWhatItHasApplied breaks a_late_update_does_not_undo_a_newer_one;
    Sabotage::TellsTheUnexpectedFirst breaks a_lost_grant_is_told_before_what_was_unexpected;
    Sabotage::TransfersInSilence breaks a_watch_wakes_on_transfer;
    Sabotage::BatchHasAnEnd breaks many_heartbeats_are_each_answered_once;
    Sabotage::GrantKeepsTheBeat breaks heartbeats_count_from_each_grant;
    Sabotage::AdoptionKeepsTheBeat breaks heartbeats_count_from_each_adoption;
    Sabotage::TellsOfReservations breaks reserved_key_has_no_holder;
    Sabotage::TellsOfTransfers breaks transferred_key_has_no_holder;
    Apart::ObtainsInTwoSteps breaks claims_through_two_handles_grant_one;
    Apart::AdoptsInTwoSteps breaks adoptions_through_two_handles_grant_one;
    Apart::HeartbeatsInTwoSteps breaks release_through_second_handle_is_final;
    Apart::CreatesInTwoSteps breaks creates_through_two_handles_make_one_record;
    Apart::UpdatesInTwoSteps breaks updates_through_two_handles_apply_one;
    Apart::CountsTokensInTheHandle breaks tokens_grow_across_handles;
    Apart::KeepsNoncesInTheHandle breaks released_nonce_is_refused_through_second_handle;
    Apart::CountsHeartbeatsInTheHandle breaks late_heartbeat_through_second_handle_is_overtaken;
    Apart::CachesThatNobodyHolds breaks grant_is_seen_through_second_handle;
    Apart::WakesItsOwnWatchesAlone breaks watch_wakes_on_release_through_second_handle;
    Apart::EvictsInTheHandle breaks eviction_through_second_handle_ends_lease;
    Apart::ForgetsGrants breaks held_key_stays_held_after_reopening;
    Apart::ForgetsTokens breaks tokens_grow_after_reopening;
    Apart::ForgetsNonces breaks released_nonce_is_refused_after_reopening;
    Apart::ForgetsReservations breaks reserved_key_stays_reserved_after_reopening;
    Apart::ForgetsHeartbeats breaks late_heartbeat_is_overtaken_after_reopening;
    Apart::ForgetsAttributes breaks attributes_are_read_back_after_reopening;
    Apart::ForgetsEvictions breaks evicted_lease_stays_evicted_after_reopening;
    Apart::CallsItselfEmpty breaks
        held_key_stays_held_after_reopening
        reserved_key_stays_reserved_after_reopening
        late_heartbeat_is_overtaken_after_reopening
        attributes_are_read_back_after_reopening
        evicted_lease_stays_evicted_after_reopening;
    Apart::CountsFromOneWhenEmpty breaks tokens_grow_after_reopening;
}
