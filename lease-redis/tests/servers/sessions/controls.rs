//! Controls: without one condition of a script, a story finds a broken promise.

use super::script_server::Server;
use super::stories::{self, Kept};
use crate::setting::servers;

type Story = fn(&mut Server) -> Kept;

/// A script, a part of the script, the text in its place, and the story that needs the part.
type Control = (&'static str, &'static str, &'static str, Story);

#[test]
fn every_condition_of_the_scripts_of_sessions_is_needed() {
    let Some([server]) = servers() else { return };
    let mut server = Server::start(server);
    let mut unneeded = Vec::new();
    let controls = [CLAIMS, REFUSALS, CHILDREN, ENDS, READS];
    for &(script, from, to, story) in controls.into_iter().flatten() {
        server.reset();
        assert_eq!(story(&mut server), Ok(()), "{script}: {from}");

        server.edit(script, from, to);
        let found = story(&mut server);

        match found {
            Ok(()) => unneeded.push((script, from)),
            Err(promise) => println!("{script} without {from:?}: broken: {promise}"),
        }
    }
    assert!(unneeded.is_empty(), "no promise is broken without {unneeded:?}");
}

const CLAIMS: &[Control] = &[
    (
        UNDER,
        "is_as_seen = token == seen",
        "is_as_seen = true",
        stories::claim_that_has_seen_another_token,
    ),
    (UNDER, " and past[7] == former_token", "", stories::proof_of_a_former_session),
    (UNDER, "past[6] == former and ", "", stories::proof_of_another_session),
    (UNDER, "and not past[2] ", "", stories::vacancy_of_a_held_key),
    (UNDER, " and (reserved == 0 or past[9] == lessee)", "", stories::key_reserved_for_another),
    (UNDER, "past[9] == lessee", "false", stories::key_reserved_for_another),
    (UNDER, "reserved == 0 or ", "not past[8] or ", stories::reservation_that_has_passed),
    (UNDER, "redis.call('HDEL', lease, 'until', 'only')", "", stories::key_reserved_for_another),
    (UNDER, "if holds and past[1] == nonce then", "if false then", stories::repeated_claim),
    (UNDER, "if holds and past[1] == nonce then", "if holds then", stories::repeated_claim),
    (
        UNDER,
        "if holds and past[1] == nonce then",
        "if past[1] == nonce then",
        stories::repeated_claim,
    ),
];

const REFUSALS: &[Control] = &[
    (
        UNDER,
        "redis.call('SET', lease .. ':refused'",
        "redis.call('SET', lease .. ':other'",
        stories::refusal_by_a_lock,
    ),
    (UNDER, "retention + redis.call('PTTL', lease)", "1000", stories::refusal_by_a_lock),
    (UNDER, "add_mark(lease, text, 'w')", "", stories::refusal_by_a_lock),
    (UNDER, "last_token(lease, tokens, past[3])", "past[3] or ''", stories::refusal_by_a_lock),
    ("read", "last_token(lease, has_locks, past[1])", "past[1] or ''", stories::refusal_by_a_lock),
    (
        UNDER,
        "    redis.call('HSET', lease, 'lasts', retention)\n",
        "",
        stories::refusal_by_an_end_mark,
    ),
    (UNDER, "        keep(lease, past[10], retention)\n", "", stories::refusal_by_an_end_mark),
    (
        "end_session",
        "last_token(lease, tokens, past[3])",
        "past[3]",
        stories::refusal_of_a_claim_that_saw_an_end,
    ),
    ("obtain", " and not past[10]", "", stories::plain_lease_on_the_key_of_a_child),
];

const CHILDREN: &[Control] = &[
    (
        "obtain",
        KEEPS_GRANT,
        "keep_for_ever(lease, past[8])",
        stories::plain_lease_on_the_key_of_a_child,
    ),
    (UNDER, "retention)\n    keep_for_ever(lease, kept)\n", "retention)\n", stories::child_lasts),
    (UNDER, "if parent ~= '' then", "if false then", stories::child_lasts),
    (UNDER, "if parent ~= '' then", "if true then", stories::claim_without_a_session),
    (UNDER, "remove_end(lease)\nlocal granted", "local granted", stories::claim_without_a_session),
    (UNDER, "    dissolve_queue(lease)\n", "", stories::child_with_a_queue),
    ("release", "removed > 1 and ", "false and ", stories::released_child),
    (
        "release",
        "redis.pcall('EXISTS', lease .. ':attributes') ~= 1",
        "true",
        stories::released_child_with_attributes,
    ),
    (
        "transfer",
        "    remove_end(lease)\n",
        "    redis.call('HDEL', lease, 'ends')\n",
        stories::transferred_child,
    ),
    ("heartbeat", "if held[7] then", "if false then", stories::heartbeat_of_a_child),
    ("adopt", "'only')\nremove_end(lease)\n", "'only')\n", stories::adopted_child),
    (
        "adopt",
        "if parent == '' and not ARGV[11] then",
        "if not ARGV[11] then",
        stories::adoption_under_a_session,
    ),
    ("adopt", "if parent ~= '' then", "if false then", stories::adoption_under_a_session),
    ("evict", "redis.call('HEXISTS', lease, 'parent') == 1", "false", stories::eviction_of_a_child),
];

const ENDS: &[Control] = &[
    (END, "if tonumber(token) > tonumber(session) then", "if false then", stories::end_of_a_lock),
    (END, "if string.sub(text, 33, 33) ~= 'r' then", "if false then", stories::end_of_a_lock),
    (END, "~= 'r' then", "then", stories::end_of_a_reserved_lock),
    (END, "    vacate(lease, string.sub(text, 1, 32))\n", "", stories::end_of_a_reserved_lock),
    (END, "    reserve(lease, left, '', retention)\n", "", stories::end_of_a_reserved_lock),
    (END, "if token > tonumber(session) then", "if false then", stories::end_of_a_record),
    (END, "if (tonumber(past[2]) or 0) > now() then", "if false then", stories::end_of_a_record),
    (END, "vacate(lease, past[1] or '')\n", "", stories::end_of_a_record),
    (END, "retention)\nnotify(lease, publish, channel)", "retention)", stories::end_of_a_record),
    (END, "redis.call('HSET', lease, 'token', session)\n", "", stories::end_of_an_absent_record),
    (END, "keep(lease, past[4], retention)\n", "", stories::end_of_an_absent_record),
    (
        END,
        "and settle(lease, tokens, 'q') then",
        "and false then",
        stories::end_of_a_lock_with_a_queue,
    ),
    (END, "redis.call('EXISTS', lease) == 0 and ", "", stories::end_of_a_record_with_a_queue),
];

const READS: &[Control] = &[
    (
        "read",
        "is_reserved and redis.call('PTTL', lease) or 0",
        "0",
        stories::end_of_a_reserved_lock,
    ),
    ("read", "is_reserved and 1 or 0", "0", stories::end_of_a_reserved_lock),
    ("read", "(tonumber(past[3]) or 0) - now()", "0", stories::transferred_child),
    (
        "read",
        "has_ended = token ~= '' and not past[2]",
        "has_ended = token ~= ''",
        stories::end_of_a_record,
    ),
    (
        "read",
        "has_ended = token ~= '' and not past[2]",
        "has_ended = not past[2]",
        stories::count_of_a_new_key,
    ),
    (
        "count",
        "    keep_for_ever(lease, redis.call('HGET', lease, 'kept'))\n",
        "",
        stories::count_of_a_new_key,
    ),
    ("count", "redis.call('ZADD', index, 0, entry)", "", stories::count_of_a_new_key),
    ("count", "if index and lock_at(lease) then", "if false then", stories::count_of_a_lock),
    ("count", "math.abs(number) >= 9007199254740991", "false", stories::count_of_a_large_number),
];

const UNDER: &str = "obtain_under";

const END: &str = "end_session";

const KEEPS_GRANT: &str = "keep_grant(lease, attributes, tokens, past[8], retention + ttl)";
