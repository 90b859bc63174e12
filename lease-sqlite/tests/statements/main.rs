//! Each condition of each statement protects a promise. If a test removes the condition, a scenario fails.
//! The clocks of a scenario are simulated.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod in_turn;
mod scenarios;
mod sessions;
mod world;

use std::future::Future;
use std::thread;

use crate::world::World;

/// A statement, a part of its text, and the replacement for this part.
type Sabotage = (&'static str, &'static str, &'static str);

/// Panics if the scenario fails because a statement is invalid SQL.
fn passes<F: Future<Output = ()> + 'static>(
    scenario: fn(World) -> F,
    sabotages: &'static [Sabotage],
) -> bool {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(scenario(World::new(sabotages)));
    };
    let Err(panicked) = thread::spawn(run).join() else { return true };
    let text = panicked.downcast_ref::<String>().cloned().unwrap_or_default();
    for misuse in ["parameter name", "syntax error", "no such", "should have"] {
        assert!(!text.contains(misuse), "{text}");
    }
    false
}

macro_rules! scenarios {
    ($module:ident: $($scenario:ident, $($statement:literal: $old:literal => $new:literal;)*)*) => {
        $(
            #[test]
            fn $scenario() {
                assert!(passes($module::$scenario, &[]), "fails on correct statements");
                $(
                    let sabotage: &'static [Sabotage] = &[($statement, $old, $new)];
                    let is_kept = passes($module::$scenario, sabotage);
                    assert!(!is_kept, "{} keeps the promise without {:?}", $statement, $old);
                )*
            }
        )*
    };
}

scenarios! {
    scenarios:
    held_key_is_refused,
        "obtain": "(l.ends IS NULL OR l.ends <= boot_time())" => "1";
    expired_key_is_granted_again,
        "obtain": "l.ends IS NULL OR l.ends <= boot_time()" => "l.ends IS NULL";
        "obtain": "boot_time() + :ttl" => "9223372036854775807";
    ttl_counts_from_after_the_wait_for_the_lock,
        "obtain": "boot_time() + :ttl" => "3600000000 + :ttl";
    claim_of_expired_grant_is_not_granted_again,
        "obtain": "AND l.nonce IS NOT excluded.nonce" => "";
    released_claim_is_not_granted_again,
        "obtain": "AND l.last IS NOT excluded.nonce" => "";
        "release": "last = nonce," => "";
    reserved_key_is_refused_until_its_time,
        "obtain": "l.until IS NULL OR l.until <= boot_time() OR l.only_for IS excluded.lessee" => "1";
        "obtain": "OR l.until <= boot_time()" => "";
        "reserve": "until = boot_time() + :reserved" => "until = :reserved";
    transferred_key_is_granted_to_its_lessee_only,
        "obtain": "OR l.only_for IS excluded.lessee" => "";
        "reserve": "only_for = :only_for" => "only_for = iif(:only_for IS NULL, NULL, NULL)";
        "obtain": "until = NULL," => "";
    tokens_grow_if_the_wall_clock_stands_still,
        "obtain": "coalesce(l.token, 0) + 1" => "coalesce(l.token, 0)";
        "obtain": "token = max(coalesce(l.token, 0) + 1, excluded.token)" => "token = excluded.token";
        "adopt": "max(token + 1, wall_time())" => "wall_time()";
    tokens_grow_over_removed_rows,
        "obtain": "max(wall_time(), (SELECT token + 1 FROM floor))" => "wall_time()";
    new_grant_starts_anew,
        "obtain": "beat = 0," => "";
        "obtain": "evicted = 0," => "";
        "adopt": "beat = 0," => "";
    earlier_token_of_one_nonce_writes_nothing,
        "heartbeat": "AND token = :token" => "AND :token IS NOT NULL";
        "release": "AND token = :token" => "AND :token IS NOT NULL";
        "reserve": "AND token = :token" => "AND :token IS NOT NULL";
        "update": "AND token = :token" => "AND :token IS NOT NULL";
        "delete": "AND token = :token" => "AND :token IS NOT NULL";
        "adopt": "AND token = :token" => "AND :token IS NOT NULL";
    equal_token_of_another_nonce_writes_nothing,
        "heartbeat": "AND nonce = :nonce" => "AND :nonce IS NOT NULL";
        "release": "AND nonce = :nonce" => "AND :nonce IS NOT NULL";
        "reserve": "AND nonce = :nonce" => "AND :nonce IS NOT NULL";
        "update": "AND nonce = :nonce" => "AND :nonce IS NOT NULL";
        "delete": "AND nonce = :nonce" => "AND :nonce IS NOT NULL";
        "adopt": "AND nonce = :handed" => "AND :handed IS NOT NULL";
    expired_grant_writes_nothing,
        "heartbeat": "AND ends > boot_time()" => "";
        "reserve": "AND ends > boot_time()" => "";
        "update": "AND ends > boot_time()" => "";
        "delete": "AND ends > boot_time()" => "";
        "adopt": "AND ends > boot_time()" => "";
        "evict": "AND ends > boot_time()" => "";
    evicted_grant_is_neither_extended_nor_adopted,
        "heartbeat": "AND evicted = 0" => "";
        "adopt": "AND evicted = 0" => "";
    eviction_names_one_grant_of_one_key,
        "evict": "WHERE key = :key" => "WHERE :key IS NOT NULL";
        "evict": "AND token = :token" => "AND :token IS NOT NULL";
    late_heartbeat_is_overtaken,
        "heartbeat": "AND beat < :beat" => "";
        "heartbeat": "beat = :beat" => "beat = beat";
    attributes_change_only_as_expected,
        "update": "AND meets(attributes, :expected)" => "AND :expected IS NOT NULL";
        "update": "record = 'lasting'" => "record = record";
        "obtain": "json_patch(l.attributes, excluded.attributes)" => "excluded.attributes";
        "adopt": "json_patch(attributes, :attributes)" => ":attributes";
    record_is_created_once_and_not_under_a_holder,
        "create": "l.record <> 'lasting'" => "1";
        "create": "(l.ends IS NULL OR (l.boot = boot_id() AND l.ends <= boot_time()))" => "1";
        "create": "l.ends IS NULL OR (" => "(";
    deleted_record_is_gone,
        "delete": "record = 'deleted'" => "record = record";
        "delete": "attributes = '{}'" => "attributes = attributes";
        "delete": "last = nonce," => "";
    list_has_its_prefix_in_pages,
        "list": "key >= :prefix AND" => ":prefix IS NOT NULL AND";
        "list": "ORDER BY key" => "ORDER BY key DESC";
    lease_of_another_boot_gets_one_more_ttl,
        "obtain": "l.boot = boot_id()" => "1";
        "first_seen": "boot_time() + iif(ends IS NULL, NULL, ttl)" => "ends";
    reservation_of_another_boot_lasts_once_more,
        "first_seen": "until = boot_time() + iif(until IS NULL, NULL, reserved)" => "until = until";
    second_process_does_not_extend_leases,
        "first_seen": "WHERE boot <> boot_id()" => "WHERE 1";
    write_after_a_reboot_belongs_to_the_new_boot,
        "heartbeat": "boot = boot_id()," => "";
        "adopt": "boot = boot_id()," => "";
        "reserve": "boot = boot_id()," => "";
    row_of_another_boot_is_not_removed,
        "remove": "AND boot = boot_id()" => "";
    rows_are_removed_only_when_they_no_longer_matter,
        "remove": "record <> 'lasting'" => "1";
        "remove": "AND coalesce(until, 0) <= boot_time()" => "";
        "remove": "AND coalesce(ends, freed, 0) <= boot_time() - max(coalesce(ttl, 0), :kept)" => "AND :kept IS NOT NULL";
        "remove": "max(coalesce(ttl, 0), :kept)" => "min(0, :kept)";
        "remove": "WHERE record" => "WHERE 0 AND record";
}

scenarios! {
    sessions:
    lease_under_session_outlasts_its_ttl,
        "obtain_under": "iif(:parent IS NULL, boot_time() + :ttl, 9223372036854775807)" => "boot_time() + :ttl";
        "adopt": "iif(:parent IS NULL, boot_time() + :ttl, 9223372036854775807)" => "boot_time() + :ttl";
    claim_is_refused_if_its_token_is_no_longer_current,
        "obtain_under": "l.token IS :seen" => "1";
        "obtain_under": "max(coalesce(l.token, 0) + 1, excluded.token)" => "excluded.token";
    end_of_another_session_frees_no_key,
        "obtain_under": "l.parent = :former AND" => "";
        "obtain_under": "AND l.parent_token = :former_token" => "AND :former_token > 0";
    key_that_has_left_its_session_is_refused,
        "obtain_under": "l.ends = 9223372036854775807 AND" => "";
    key_whose_last_lease_is_open_is_refused,
        "obtain_under": "l.ends IS NULL," => "1,";
    claim_is_refused_if_its_row_was_removed,
        "obtain_under": "WHERE :seen IS NULL OR EXISTS (SELECT 1 FROM lease WHERE key = :key)" => "WHERE 1";
    session_is_ended_only_after_its_ttl,
        "end_session": "l.ends <= boot_time())" => "1)";
    end_of_a_former_session_changes_no_later_one,
        "end_session": "(l.token IS NULL OR l.token <= :token)" => "1";
    session_without_its_grant_gets_an_end_mark,
        "end_session": ":token > (SELECT token FROM floor) OR" => "";
        "end_session": "iif(l.ends IS NULL, l.token IS NOT :token," => "iif(l.ends IS NULL, 0,";
    session_of_another_boot_gets_one_more_ttl,
        "end_session": "l.boot = boot_id()" => "1";
        "first_seen": "iif(ends = 9223372036854775807, ends," => "iif(0, ends,";
    count_keeps_other_attributes,
        "count": "json_patch(l.attributes, excluded.attributes)" => "excluded.attributes";
        "count": "    record = 'lasting'," => "    record = record,";
}

scenarios! {
    in_turn:
    waiters_are_granted_in_the_order_of_arrival,
        "queue": "ORDER BY place" => "ORDER BY place DESC";
        "dequeue": "AND nonce = :nonce" => "AND :nonce IS NOT NULL";
        "dequeue": "AND nonce = :nonce" => "AND nonce IS NULL AND :nonce IS NULL";
    place_expires_unless_it_is_renewed,
        "queue": "AND ends > boot_time()" => "";
        "renew": "ends = boot_time() + :ttl" => "ends = ends + 0 * :ttl";
    place_of_another_boot_has_expired,
        "queue": "AND boot = boot_id()" => "";
        "renew": "boot = boot_id()," => "";
    grant_names_the_largest_request,
        "renew": "max(request, :request)" => ":request";
    renewal_of_another_claim_is_no_renewal,
        "renew": "AND nonce = :nonce" => "AND :nonce IS NOT NULL";
    queue_of_another_key_is_left_alone,
        "queue": "WHERE key = :key" => "WHERE :key IS NOT NULL";
    expired_places_are_removed,
        "remove_places": "ends <= boot_time()" => "0";
        "remove_places": "boot <> boot_id() OR" => "1 OR";
    transferred_key_is_granted_to_its_waiter,
        "obtain": "OR l.only_for IS excluded.lessee" => "";
    reservation_is_noticed_once_by_waiters,
}
