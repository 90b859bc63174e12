//! Tests the conformance kit: each injected bug must break exactly the promises that cover it.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod apart;
mod claimed;
mod leases;
mod queues;
mod records;
mod saboteur;
mod sessions;

use std::panic::{AssertUnwindSafe, catch_unwind};

use lease_core::conformance::{Fixture, lock_promises, table_promises};
use lease_core::store::LeaseTable;

use crate::apart::Apart;
use crate::saboteur::Sabotage;
use crate::sessions::Sessional;

/// Returns an error text unless exactly the promises `broken` fail.
fn breaks<F>(sabotage: F, broken: &[&str]) -> Option<String>
where
    F: Fixture<Store: LeaseTable> + Copy + std::fmt::Debug,
{
    // Broken promises panic, as expected. Their output would hide an unexpected panic.
    std::panic::set_hook(Box::new(|_| ()));
    let promises = lock_promises::<F>().into_iter().chain(table_promises());
    let failed: Vec<_> = promises
        .filter(|promise| catch_unwind(AssertUnwindSafe(|| (promise.check)(sabotage))).is_err())
        .map(|promise| promise.name)
        .collect();
    drop(std::panic::take_hook());

    (failed != broken).then(|| format!("{sabotage:?} breaks {failed:?}, expected {broken:?}"))
}

macro_rules! sabotages {
    ($($kind:ident :: $sabotage:ident breaks $($promise:ident)*;)*) => {
        /// The panic hook belongs to the whole process, so one test injects all bugs.
        #[test]
        fn each_sabotage_breaks_its_own_promises_and_no_other() {
            let tried = [$(breaks($kind::$sabotage, &[$(stringify!($promise)),*])),*];
            let wrong: Vec<_> = tried.into_iter().flatten().collect();
            assert!(wrong.is_empty(), "{wrong:#?}");
        }
    };
}

/// No step awaits, so the steps of two requests can interleave only on two threads and in real
/// time.
#[test]
fn claim_in_two_blocking_steps_is_detected_on_two_threads() {
    let promises = lock_promises::<Apart>();
    let name = "claims_through_two_handles_grant_one";
    let promise = promises.iter().find(|promise| promise.name == name).unwrap();

    let held = catch_unwind(|| (promise.check)(Apart::ObtainsInTwoBlockingSteps));

    let panicked = held.unwrap_err();
    let text = panicked.downcast_ref::<String>().unwrap();
    assert!(text.contains("in one atomic step"), "{text}");
}

sabotages! {
    Sabotage::GrantsTwice breaks
        claims_of_several_keys_at_once_are_each_answered
        held_key_is_granted_to_no_other_lessee
        claims_through_two_handles_grant_one
        grant_is_seen_through_second_handle
        held_key_stays_held_after_reopening;
    Sabotage::GrantsOneLesseeTwice breaks lessee_is_not_granted_a_key_twice;
    Sabotage::ForgetsTheToken breaks
        tokens_grow_over_releases
        tokens_grow_across_handles
        tokens_grow_after_reopening;
    Sabotage::ForgetsTheTokenOnExpiry breaks tokens_grow_over_expiry;
    Sabotage::KeepsTheTokenOnAdoption breaks
        tokens_grow_over_adoption
        repeated_adoption_does_not_undo_update;
    Sabotage::IgnoresTheNonceOnRelease breaks release_by_former_holder_changes_nothing;
    Sabotage::RegrantsAReleasedNonce breaks
        released_nonce_is_not_granted_again
        released_nonce_is_refused_through_second_handle
        released_nonce_is_refused_after_reopening;
    Sabotage::ForgetsReleasedNonces breaks;
    Sabotage::NamesTheLesseeBefore breaks spent_claim_is_refused_in_its_own_name;
    Sabotage::NamesTheLesseeAfter breaks spent_claim_is_refused_in_its_own_name;
    Sabotage::RegrantsUnderTheSameToken breaks
        released_nonce_is_not_granted_again
        released_nonce_is_refused_through_second_handle
        released_nonce_is_refused_after_reopening;
    Sabotage::ExtendsWhatWasReleased breaks
        released_nonce_is_not_granted_again
        released_nonce_is_refused_through_second_handle
        released_nonce_is_refused_after_reopening;
    Sabotage::AnswersTheWrongClaim breaks claims_of_several_keys_at_once_are_each_answered;
    Sabotage::CallsALostBatchRefused breaks
        claims_of_several_keys_at_once_are_each_answered
        held_key_is_granted_to_no_other_lessee;
    Sabotage::HeartbeatIgnoresItsTtl breaks heartbeat_lasts_as_long_as_its_own_ttl;
    Sabotage::LateHeartbeatShortens breaks late_heartbeat_does_not_shorten;
    Sabotage::LateHeartbeatIsCalledALoss breaks
        late_heartbeat_is_overtaken
        late_heartbeat_through_second_handle_is_overtaken
        late_heartbeat_is_overtaken_after_reopening;
    Sabotage::HeartbeatRevives breaks heartbeat_does_not_revive_expired_lease;
    Sabotage::ExtendsOnRepeatedClaim breaks
        repeated_claim_does_not_extend
        held_key_stays_held_after_reopening;
    Sabotage::AdoptsTwice breaks
        grant_is_adopted_at_most_once
        adoptions_through_two_handles_grant_one;
    Sabotage::AdoptsWhatWasReleased breaks released_grant_is_not_adopted;
    Sabotage::IgnoresReservations breaks
        reserved_key_is_not_granted_before_its_time
        reserved_key_has_no_holder
        reserved_key_stays_reserved_after_reopening
        refused_claim_sets_no_attributes;
    Sabotage::ReleasesInSilence breaks
        watch_wakes_on_release
        watch_wakes_on_release_through_second_handle;
    Sabotage::UpdateIsNotFenced breaks update_by_former_holder_changes_nothing;
    Sabotage::UpdateIgnoresTheToken breaks update_under_an_earlier_token_changes_nothing;
    Sabotage::UpdateExtends breaks update_does_not_extend;
    Sabotage::TransfersToItself breaks transferred_key_is_granted_only_to_its_lessee;
    Sabotage::DeleteIsNotFenced breaks delete_by_former_holder_changes_nothing;
    Sabotage::CreateOverwrites breaks record_is_created_once;
    Sabotage::ListsOtherPrefixes breaks list_has_every_record_of_its_prefix;
    Sabotage::NamesTheRepeatedRequest breaks repeated_claim_does_not_extend;
    Sabotage::EvictsByKeyAlone breaks eviction_of_another_grant_changes_nothing;
    Sabotage::EvictsNoHolderOfARecord breaks holder_of_record_is_evicted;
    Sabotage::ScansOtherPrefixes breaks scan_lists_held_keys_of_its_prefix;
    Sabotage::ScansNoRecords breaks scan_lists_holders_of_records;
    Sabotage::EvictionFreesAtOnce breaks evicted_lease_expires_by_its_ttl;
    Sabotage::AdoptsWhatWasEvicted breaks evicted_grant_is_not_adopted;
    Sabotage::TellsOfExpiredHolders breaks expired_key_has_no_holder;
    Sabotage::AdoptionKeepsTheOldExpiry breaks
        heartbeats_count_from_each_adoption
        adoption_lasts_for_its_own_ttl;
    Sabotage::AdoptionForgetsAttributes breaks
        adoption_returns_attributes
        attributes_of_adopting_claim_are_set_with_grant
        repeated_adoption_does_not_undo_update;
    Sabotage::UpdatesWhatHasExpired breaks update_after_expiry_changes_nothing;
    Sabotage::ExpectsTheFirstAlone breaks update_that_expects_another_value_changes_nothing;
    Sabotage::ExpectsTextAlone breaks every_type_of_attribute_can_be_expected;
    Sabotage::IgnoresWhatIsExpectedAbsent breaks
        absent_attribute_can_be_expected
        updates_through_two_handles_apply_one;
    Sabotage::RepeatsWhatItHasApplied breaks late_update_does_not_undo_a_newer_one;
    Sabotage::TellsTheUnexpectedFirst breaks lost_grant_is_reported_before_unexpected_value;
    Sabotage::TransfersInSilence breaks watch_wakes_on_transfer;
    Sabotage::BatchHasAnEnd breaks many_heartbeats_are_each_answered_once;
    Sabotage::GrantKeepsTheBeat breaks heartbeats_count_from_each_grant;
    Sabotage::AdoptionKeepsTheBeat breaks heartbeats_count_from_each_adoption;
    Sabotage::TellsOfReservations breaks reserved_key_has_no_holder;
    Sabotage::TellsOfTransfers breaks transferred_key_has_no_holder;
    Sabotage::DropsAttributesOfClaims breaks
        attributes_of_claim_are_set_or_refused
        attributes_of_claim_are_set_with_grant
        record_lasts_after_claim_with_attributes;
    Sabotage::ReturnsAttributesFromBefore breaks
        attributes_of_claim_are_set_or_refused
        attributes_of_claim_are_set_with_grant;
    Sabotage::ForgetsAttributesOfClaims breaks record_lasts_after_claim_with_attributes;
    Sabotage::RefusedClaimSetsAttributes breaks refused_claim_sets_no_attributes;
    Sabotage::RepeatedClaimSetsAttributes breaks repeated_claim_does_not_undo_update;
    Sabotage::AdoptionDropsAttributes breaks attributes_of_adopting_claim_are_set_with_grant;
    Sabotage::RefusedAdoptionSetsAttributes breaks refused_adoption_sets_no_attributes;
    Sabotage::RepeatedAdoptionSetsAttributes breaks repeated_adoption_does_not_undo_update;
    Sabotage::GrantsTheLastFirst breaks
        waiters_are_granted_in_order_of_arrival
        renewed_place_is_kept;
    Sabotage::LetsPlainClaimsOvertake breaks
        waiters_are_granted_in_order_of_arrival
        plain_claim_does_not_overtake_a_waiter
        place_that_is_not_renewed_is_skipped
        renewed_place_is_kept
        waiter_that_left_is_skipped
        leaving_passes_a_granted_key_on
        grant_names_the_last_request_of_its_waiter;
    Sabotage::GrantsTheDead breaks place_that_is_not_renewed_is_skipped;
    Sabotage::RenewalMovesToTheEnd breaks renewed_place_is_kept;
    Sabotage::ForgetsThatWaitersLeft breaks waiter_that_left_is_skipped;
    Sabotage::LeavingKeepsTheGrant breaks leaving_passes_a_granted_key_on;
    Sabotage::NamesTheFirstRequest breaks
        place_that_is_not_renewed_is_skipped
        renewed_place_is_kept
        grant_names_the_last_request_of_its_waiter;
    Sabotage::RenewalIgnoresExpiry breaks
        expired_key_is_granted_to_its_first_waiter
        hanging_store_does_not_delay_loss
        failing_store_does_not_delay_loss;
    Sabotage::KeepsLateGrantsForEver breaks late_enqueue_holds_the_key_for_at_most_a_ttl;
    Sabotage::RenewalJoinsTheQueue breaks renewal_without_a_place_gets_none;
    Sessional::ExpiresChildren breaks
        lease_under_session_outlasts_its_ttl
        key_of_ended_session_is_granted_with_its_proof
        repeated_claim_under_session_is_granted_again
        lease_under_session_is_not_evicted
        claim_refused_after_late_hand_over_stays_refused;
    Sessional::ForgetsTheSession breaks lease_under_session_outlasts_its_ttl;
    Sessional::GrantsChildrenToOthers breaks lease_under_session_outlasts_its_ttl;
    Sessional::EndsHeldSessions breaks
        session_that_is_held_is_not_ended
        end_of_expired_session_is_written
        key_of_ended_session_is_granted_with_its_proof
        claim_refused_after_late_hand_over_stays_refused;
    Sessional::DoesNotWriteEnds breaks end_of_expired_session_is_written;
    Sessional::EndsLaterSessions breaks released_session_has_ended;
    Sessional::HidesEnds breaks
        end_of_expired_session_is_written
        released_session_has_ended
        release_of_earlier_lease_under_session_changes_nothing
        update_under_earlier_lease_of_session_changes_nothing;
    Sessional::RefusesProofs breaks key_of_ended_session_is_granted_with_its_proof;
    Sessional::AcceptsOtherProofs breaks proof_of_another_session_grants_nothing;
    Sessional::IgnoresTheSeenToken breaks
        claim_that_has_seen_a_smaller_token_is_refused
        claim_refused_after_late_hand_over_stays_refused;
    Sessional::RefusesRepeatedClaims breaks repeated_claim_under_session_is_granted_again;
    Sessional::GrantsTheSameToken breaks key_of_ended_session_is_granted_with_its_proof;
    Sessional::ReleasesBySession breaks release_of_earlier_lease_under_session_changes_nothing;
    Sessional::UpdatesBySession breaks update_under_earlier_lease_of_session_changes_nothing;
    Sessional::EvictsChildren breaks lease_under_session_is_not_evicted;
    Sessional::HeartbeatKeepsTheSession breaks
        heartbeat_takes_lease_out_of_its_session
        claim_refused_after_late_hand_over_stays_refused;
    Sessional::ComparesTheTokenAlone breaks claim_refused_after_late_hand_over_stays_refused;
    Sessional::HidesReservations breaks reserved_key_shows_its_reservation;
    Sessional::ReadsInReverse breaks records_of_several_keys_are_read_in_order;
    Sessional::DoesNotCount breaks count_adds_one;
    Apart::ObtainsInTwoSteps breaks claims_through_two_handles_grant_one;
    Apart::AdoptsInTwoSteps breaks adoptions_through_two_handles_grant_one;
    Apart::HeartbeatsInTwoSteps breaks release_through_second_handle_is_final;
    Apart::CreatesInTwoSteps breaks creates_through_two_handles_make_one_record;
    Apart::UpdatesInTwoSteps breaks updates_through_two_handles_apply_one;
    Apart::CountsTokensInTheHandle breaks tokens_grow_across_handles;
    Apart::KeepsNoncesInTheHandle breaks released_nonce_is_refused_through_second_handle;
    Apart::CountsHeartbeatsInTheHandle breaks late_heartbeat_through_second_handle_is_overtaken;
    Apart::CachesItsOwnGrants breaks takeover_through_second_handle_ends_first_grant;
    Apart::CachesThatNobodyHolds breaks grant_is_seen_through_second_handle;
    Apart::WakesItsOwnWatchesAlone breaks watch_wakes_on_release_through_second_handle;
    Apart::EvictsInTheHandle breaks eviction_through_second_handle_ends_lease;
    Apart::ScansItsOwnGrants breaks scan_lists_grants_of_second_handle;
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
        evicted_lease_stays_evicted_after_reopening
        attributes_are_read_back_after_reopening;
    Apart::CountsFromOneWhenEmpty breaks tokens_grow_after_reopening;
}
