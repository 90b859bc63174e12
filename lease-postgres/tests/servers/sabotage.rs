//! Negative controls: without one condition of a statement, a conformance test fails.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use lease_core::conformance::{Fixture, Reopened};
use lease_postgres::PostgresStore;
use lease_test_servers::postgres::{PATIENT, PostgresServer};
use lease_test_servers::promises::broken_of_these;

/// The name of a statement, a part of its text, and the replacement for this part.
type Alteration = (&'static str, &'static str, &'static str);

type Sabotage = (&'static [Alteration], &'static [&'static str]);

struct Altered {
    url: String,
    table: String,
    alterations: &'static [Alteration],
}

#[async_trait]
impl Fixture for Altered {
    type Store = PostgresStore;

    async fn store(&self) -> PostgresStore {
        let builder = PostgresStore::builder(&self.url).with_table(&self.table);
        let builder = builder.with_timeout(PATIENT).with_connections(4);
        builder.create_table().await.unwrap();
        let alter = |builder: lease_postgres::PostgresStoreBuilder, altered: &Alteration| {
            builder.with_altered_statement(altered.0, altered.1, altered.2)
        };
        let builder = self.alterations.iter().fold(builder, alter);
        let is_batched = self.alterations.iter().any(|(name, ..)| name.ends_with("_all"));
        let builder = if is_batched { builder.with_batches_only() } else { builder };
        builder.connect().await.unwrap()
    }

    async fn another(&self, _store: &PostgresStore) -> PostgresStore {
        self.store().await
    }

    async fn reopen(&self, store: PostgresStore) -> Reopened<PostgresStore> {
        drop(store);
        Reopened::Intact(self.store().await)
    }
}

fn expect_broken(sabotages: &[Sabotage]) {
    static TABLES: AtomicU64 = AtomicU64::new(0);
    let Some(server) = PostgresServer::start() else { return };
    for (alterations, promises) in sabotages {
        let altered = || {
            let table = format!("altered_{}", TABLES.fetch_add(1, Ordering::Relaxed));
            Altered { url: server.url(), table, alterations }
        };

        let mut broken = broken_of_these(promises, altered);

        broken.sort_unstable();
        let mut expected = promises.to_vec();
        expected.sort_unstable();
        assert_eq!(broken, expected, "after {alterations:?}");
    }
}

/// The first `WHERE` only saves writes. The conditions of the upsert decide whether to grant.
const OPEN_GATE: Alteration = ("obtain", "WHERE NOT EXISTS (", "WHERE true OR NOT EXISTS (");

#[test]
fn conditions_of_obtain_are_needed() {
    expect_broken(&[
        (
            &[
                OPEN_GATE,
                ("obtain", "WHERE (l.ends IS NULL OR l.ends <= clock_timestamp())", "WHERE true"),
            ],
            &[
                "held_key_is_granted_to_no_other_lessee",
                "lessee_is_not_granted_a_key_twice",
                "claims_through_two_handles_grant_one",
            ],
        ),
        (
            &[OPEN_GATE, ("obtain", "AND l.granted IS DISTINCT FROM $2", "")],
            &["released_nonce_is_not_granted_again", "released_nonce_is_refused_after_reopening"],
        ),
        (
            &[
                OPEN_GATE,
                (
                    "obtain",
                    "AND (l.until IS NULL OR l.until <= clock_timestamp() OR l.only_for = $3)",
                    "",
                ),
            ],
            &[
                "reserved_key_is_not_granted_before_its_time",
                "transferred_key_is_granted_only_to_its_lessee",
                "transferred_key_is_free_after_its_reservation",
            ],
        ),
        (
            &[("obtain", "OR l.only_for = $3", "")],
            &["transferred_key_is_granted_only_to_its_lessee"],
        ),
        (
            &[("obtain", "l.attributes || coalesce($6::jsonb, '{}')", "coalesce($6::jsonb, '{}')")],
            &["attributes_survive_a_lease", "obtain_returns_attributes"],
        ),
        (
            &[("obtain", "0, $6 IS NOT NULL,", "0, false,")],
            &["record_lasts_after_claim_with_attributes"],
        ),
        (
            // A locker that waits recognises its grant by `place`, which has a control in `in_turn_controls.rs`.
            &[("obtain", "WHEN h.granted = $2 AND h.ends > clock_timestamp()", "WHEN false")],
            &["repeated_claim_is_granted_again"],
        ),
        (
            &[("obtain", "WHEN h.granted = $2 OR h.last = $2 THEN $3", "")],
            &["spent_claim_is_refused_in_its_own_name"],
        ),
    ]);
}

#[test]
fn conditions_of_obtain_released_are_needed() {
    expect_broken(&[
        (
            &[("obtain_released", "AND until <= clock_timestamp()", "")],
            &[
                "reserved_key_is_not_granted_before_its_time",
                "transferred_key_is_granted_only_to_its_lessee",
            ],
        ),
        (
            &[("obtain_released", "AND granted <> $2", "")],
            &["released_nonce_is_not_granted_again", "released_nonce_is_refused_after_reopening"],
        ),
        (
            &[("obtain_released", "beat = 0,", "beat = beat,")],
            &["heartbeats_count_from_each_grant"],
        ),
    ]);
}

#[test]
fn conditions_of_statements_for_several_are_needed() {
    expect_broken(&[
        (
            &[("obtain_released_all", "AND l.until <= clock_timestamp()", "")],
            &[
                "reserved_key_is_not_granted_before_its_time",
                "transferred_key_is_granted_only_to_its_lessee",
            ],
        ),
        (
            &[("obtain_released_all", "AND l.granted <> a.nonce", "")],
            &["released_nonce_is_not_granted_again", "released_nonce_is_refused_after_reopening"],
        ),
        (
            &[("obtain_released_all", "beat = 0,", "beat = l.beat,")],
            &["heartbeats_count_from_each_grant"],
        ),
        (
            &[("release_all", "l.granted = a.nonce AND l.token = a.asked AND", "")],
            &["release_by_former_holder_changes_nothing"],
        ),
    ]);
}

#[test]
fn conditions_of_heartbeat_are_needed() {
    expect_broken(&[
        (
            &[("heartbeat", "AND m.granted = m.nonce AND m.token = m.asked", "")],
            &["heartbeat_by_former_holder_is_lost", "adopted_grant_is_lost_to_its_former_holder"],
        ),
        (
            &[("heartbeat", "AND m.ends > clock_timestamp()", "")],
            &[
                "heartbeat_does_not_revive_expired_lease",
                "heartbeat_after_release_is_lost",
                "many_heartbeats_are_each_answered_once",
            ],
        ),
        (
            &[("heartbeat", "AND m.evicted IS DISTINCT FROM m.nonce", "")],
            &[
                "evicted_lease_is_lost_at_its_next_heartbeat",
                "evicted_lease_stays_evicted_after_reopening",
            ],
        ),
        (
            &[("heartbeat", "AND m.beat < m.number", "")],
            &["late_heartbeat_does_not_shorten", "late_heartbeat_is_overtaken"],
        ),
        (
            &[("heartbeat", "WHEN m.token > a.asked", "WHEN false")],
            &["heartbeat_by_former_holder_is_lost"],
        ),
        (
            &[(
                "heartbeat",
                "WHEN m.ends > clock_timestamp() AND m.evicted = a.nonce",
                "WHEN false",
            )],
            &["evicted_lease_is_lost_at_its_next_heartbeat"],
        ),
        (
            &[(
                "heartbeat",
                "ends = clock_timestamp() + m.ttl * interval '1 microsecond'",
                "ends = m.ends",
            )],
            &["heartbeat_extends", "heartbeat_lasts_as_long_as_its_own_ttl"],
        ),
    ]);
}

#[test]
fn conditions_of_release_are_needed() {
    expect_broken(&[
        (
            &[("release", "granted = $2 AND token = $3 AND", "")],
            &["release_by_former_holder_changes_nothing"],
        ),
        (&[("release", "coalesce($4, 0)", "0")], &["reserved_key_is_not_granted_before_its_time"]),
        (
            &[(
                "transfer",
                "AND s.granted = $2 AND s.token = $3 AND s.ends > clock_timestamp()",
                "",
            )],
            &["transfer_by_former_holder_changes_nothing"],
        ),
        (
            &[("delete", "AND s.granted = $2 AND s.token = $3 AND s.ends > clock_timestamp()", "")],
            &["delete_by_former_holder_changes_nothing"],
        ),
        (&[("delete", "kept = false", "kept = true")], &["deleted_record_is_gone"]),
    ]);
}

#[test]
fn conditions_of_adopt_are_needed() {
    expect_broken(&[
        (
            &[("adopt", "AND s.granted = $2 AND s.token = $3", "")],
            &["grant_is_adopted_at_most_once", "adoptions_through_two_handles_grant_one"],
        ),
        (
            &[("adopt", "AND s.ends > clock_timestamp()", "")],
            &["released_grant_is_not_adopted", "expired_grant_is_not_adopted"],
        ),
        (
            &[("adopt", "AND s.evicted IS DISTINCT FROM s.granted", "")],
            &["evicted_grant_is_not_adopted"],
        ),
        (&[("adopt", "beat = 0,", "beat = s.beat,")], &["heartbeats_count_from_each_adoption"]),
        (
            &[("adopt", "WHEN s.granted = $4 AND s.ends > clock_timestamp()", "WHEN false")],
            &["repeated_adoption_is_granted_again"],
        ),
        (
            &[("adopt", "s.attributes || coalesce($8::jsonb, '{}')", "coalesce($8::jsonb, '{}')")],
            &["attributes_survive_a_lease"],
        ),
        (&[("evict", "AND s.token = $2", "")], &["eviction_of_another_grant_changes_nothing"]),
        (&[("holder", "AND h.ends > clock_timestamp()", "")], &["expired_key_has_no_holder"]),
    ]);
}

#[test]
fn conditions_of_records_are_needed() {
    expect_broken(&[
        (
            &[("update", "AND s.granted = $2 AND s.token = $3 AND s.ends > clock_timestamp()", "")],
            &["update_by_former_holder_changes_nothing", "update_after_expiry_changes_nothing"],
        ),
        (
            &[("update", "IS DISTINCT FROM e.value", "IS NULL")],
            &[
                "update_that_expects_another_value_changes_nothing",
                "late_update_does_not_undo_a_newer_one",
            ],
        ),
        (&[("update", "AND NOT s.attributes ?| $7", "")], &["absent_attribute_can_be_expected"]),
        (
            &[("update", "(s.attributes - $5)", "s.attributes")],
            &["update_changes_only_the_named_attributes"],
        ),
        (
            &[
                ("create", "WHERE NOT EXISTS (", "WHERE true OR NOT EXISTS ("),
                ("create", "WHERE NOT l.kept AND", "WHERE"),
            ],
            &["record_is_created_once", "creates_through_two_handles_make_one_record"],
        ),
        (
            &[("scan", "ELSE 'none'", "ELSE 'held'")],
            &["scan_lists_held_keys_of_its_prefix", "scan_lists_holders_of_records"],
        ),
    ]);
}

#[test]
fn conditions_of_sessions_are_needed() {
    expect_broken(&[
        (
            &[("obtain_under", "AND l.token IS NOT DISTINCT FROM $7", "")],
            &["claim_that_has_seen_a_smaller_token_is_refused"],
        ),
        (
            &[("obtain_under", "ELSE l.ends = 'infinity' AND", "ELSE")],
            &["claim_refused_after_late_hand_over_stays_refused"],
        ),
        (
            &[("obtain_under", "AND l.parent = $8 AND l.parent_token = $9", "")],
            &["proof_of_another_session_grants_nothing"],
        ),
        (
            &[("obtain_under", "WHEN h.granted = $2 AND h.ends > clock_timestamp()", "WHEN false")],
            &["repeated_claim_under_session_is_granted_again"],
        ),
        (
            &[("obtain_under", "ELSE 'infinity'", "ELSE clock_timestamp()")],
            &["lease_under_session_outlasts_its_ttl"],
        ),
        (
            &[("end_session", "(s.ends <= clock_timestamp() OR", "(true OR")],
            &["session_that_is_held_is_not_ended"],
        ),
        (&[("evict", "AND isfinite(s.ends)", "")], &["lease_under_session_is_not_evicted"]),
        (
            &[("read_all", "h.token IS NOT NULL AND h.ends IS NULL AS ended", "false AS ended")],
            &["end_of_expired_session_is_written", "released_session_has_ended"],
        ),
        (
            &[("read_all", "CASE WHEN h.until > clock_timestamp()", "CASE WHEN false")],
            &["reserved_key_shows_its_reservation"],
        ),
    ]);
}
