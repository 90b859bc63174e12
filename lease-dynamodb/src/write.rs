//! The conditional writes: what each requires and what it changes.

use std::time::Duration;

use lease_core::{Beat, Claim, FencingToken, Grant, Lessee, micros_since_1970};

use crate::config::{Settings, TimeMode};
use crate::foreign::{Foreign, lock_client_columns};
use crate::item::Sight;
use crate::parts::Expression;
use crate::time::Now;

/// What stands in `purge_at` of an item that the table's TTL must leave alone: it ignores
/// whatever is not a number.
pub(crate) const NEVER: &str = "never";

/// A time that never comes: the end of a reservation that was made without knowing the time.
const NO_TIME: u64 = (1 << 53) - 1;

/// Whether the table's TTL may purge an item that is about to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purge {
    /// As the item says, where it is one of ours; otherwise refuse.
    AsMarked,
    /// Never, whatever the item says: it is not one of ours, or carries attributes.
    Never,
}

/// Takes a free key, or one whose holder is gone: the three ways of the protocol.
pub(crate) fn obtain(
    claim: &Claim,
    settings: &Settings,
    now: Option<Now>,
    gone: Option<&Gone>,
    purge: Purge,
) -> Expression {
    let mut write = Expression::default();

    // (a) Nobody has it, and it is kept for nobody else.
    let mut unreserved =
        "attribute_not_exists(#reserved_until) OR #offered_to = :lessee".to_owned();
    if let Some(now) = now {
        write.value("passed", now.lowest.as_millis_down());
        unreserved.push_str(" OR #reserved_until <= :passed");
    }
    // Other programs write an owner of nobody as NULL, or as a text before every real one.
    write.value("null", "NULL");
    write.value("blank", " ");
    let mut takeable = vec![format!(
        "(attribute_not_exists(#lessee) OR attribute_type(#lessee, :null) OR #lessee < :blank) \
         AND ({unreserved})"
    )];
    // (b) It was watched for the holder's whole ttl, and has not changed since.
    if let Some(gone) = gone {
        takeable.push(unchanged(&mut write, gone));
    }
    // (c) DynamoDB's own time says that the holder's is over.
    if let (TimeMode::ServerTimeAndObservation, Some(now)) = (settings.time_mode, now) {
        write.value("over", over_before(settings, now));
        takeable.push("#expires_at <= :over".to_owned());
    }
    // One pair of parentheses: DynamoDB refuses redundant ones.
    write.condition(format!("({})", takeable.join(" OR ")));
    // The nonce of this very claim is there already: it was granted before, and may have been
    // released since. Whatever came of it, this is a duplicate.
    write.condition("(attribute_not_exists(#nonce) OR #nonce <> :nonce)");
    write.value("max_token", FencingToken::MAX.get());
    write.condition("(attribute_not_exists(#token) OR #token < :max_token)");
    if !settings.lock_client_items {
        for name in lock_client_columns(&settings.columns) {
            write.expect_payload(name, [None]);
        }
    }
    if settings.existing_only {
        write.condition("attribute_exists(#lease_key) AND attribute_not_exists(#deleted)");
    }
    if settings.retention.is_some() && purge == Purge::AsMarked {
        write.condition(
            "(attribute_not_exists(#lease_key) OR attribute_exists(#token) \
             OR attribute_exists(#lasting))",
        );
    }
    grant(&mut write, claim, settings, now, purge);
    write
}

/// Makes `claim` the holder of `handed`, while that stands and nobody has adopted it.
pub(crate) fn adopt(
    handed: &Grant,
    claim: &Claim,
    settings: &Settings,
    now: Option<Now>,
) -> Expression {
    let mut write = Expression::default();
    write.value("handed", handed.nonce);
    write.value("former_lessee", handed.lessee.as_str());
    write.value("former_token", handed.token.get());
    write.condition("#nonce = :handed AND #lessee = :former_lessee AND #token = :former_token");
    write.condition("attribute_not_exists(#evicted)");
    not_over(&mut write, settings, now);
    grant(&mut write, claim, settings, now, Purge::AsMarked);
    write
}

/// Keeps a grant alive. There is no look at the time but to refuse what is surely over.
///
/// Refusing is always safe: whoever holds a lease stops before its ttl has passed, and this
/// comes a margin later at the least. So it can only hit a heartbeat that was on its way for too
/// long, or one whose sender does not know yet that it has lost.
pub(crate) fn heartbeat(
    grant: &Grant,
    beat: Beat,
    settings: &Settings,
    now: Option<Now>,
) -> Expression {
    let mut write = held_by(grant);
    not_over(&mut write, settings, now);
    write.value("beat", beat.get());
    write.condition("attribute_not_exists(#evicted)");
    write.condition("(attribute_not_exists(#beat) OR #beat < :beat)");
    write.set(["#beat = :beat", "#ttl_ms = :ttl_ms"]);
    write.value("ttl_ms", grant.ttl);
    expire(&mut write, grant.ttl, settings, now, Purge::AsMarked);
    write
}

/// Sets what could not be known when a grant was written: DynamoDB's time, and that the item
/// carries attributes. Only before the first heartbeat, which would be newer.
pub(crate) fn amend(
    grant: &Grant,
    settings: &Settings,
    now: Option<Now>,
    purge: Purge,
) -> Expression {
    let mut write = held_by(grant);
    write.value("granted", Beat::GRANTED.get());
    write.condition("#beat = :granted");
    expire(&mut write, grant.ttl, settings, now, purge);
    write
}

/// Frees the key of a grant.
///
/// Without a reservation also where its time is over: what nobody has is not worth keeping.
pub(crate) fn release(
    grant: &Grant,
    settings: &Settings,
    now: Option<Now>,
    reserved: Option<Duration>,
) -> Expression {
    let mut write = held_by(grant);
    vacate(&mut write);
    if let Some(reserved) = reserved {
        not_over(&mut write, settings, now);
        reserve(&mut write, reserved, settings, now);
    }
    write
}

/// Frees the key of a grant for one lessee.
pub(crate) fn transfer(
    grant: &Grant,
    to: &Lessee,
    settings: &Settings,
    now: Option<Now>,
    reserved: Duration,
) -> Expression {
    let mut write = held_by(grant);
    not_over(&mut write, settings, now);
    vacate(&mut write);
    reserve(&mut write, reserved, settings, now);
    write.set(["#offered_to = :offered_to"]);
    write.value("offered_to", to.as_str());
    write
}

/// That a grant stands: for the writes that change attributes.
pub(crate) fn standing(grant: &Grant, settings: &Settings, now: Option<Now>) -> Expression {
    let mut write = held_by(grant);
    not_over(&mut write, settings, now);
    write
}

/// Marks the grant with `token` as ended from outside.
pub(crate) fn evict(token: FencingToken, settings: &Settings, now: Option<Now>) -> Expression {
    let mut write = Expression::default();
    write.value("token", token.get());
    // Other programs write an owner of nobody as NULL, or as a text before every real one.
    write.value("null", "NULL");
    write.value("blank", " ");
    write.condition("#token = :token AND attribute_exists(#lessee)");
    write.condition("NOT attribute_type(#lessee, :null) AND #lessee >= :blank");
    not_over(&mut write, settings, now);
    write.set(["#evicted = :true"]);
    write.value("true", true);
    write
}

/// Makes an item that lasts, where there is none or only a tombstone.
pub(crate) fn create(settings: &Settings) -> Expression {
    let mut write = Expression::default();
    write.condition("(attribute_not_exists(#lease_key) OR attribute_exists(#deleted))");
    write.remove(["#deleted"]);
    // At least one column is set, since an update that sets nothing need not make an item.
    write.set(["#beat = :granted"]);
    write.value("granted", Beat::GRANTED.get());
    last(&mut write, settings);
    write
}

/// Keeps the table's TTL away from an item.
pub(crate) fn last(write: &mut Expression, settings: &Settings) {
    if settings.retention.is_some() {
        write.set(["#lasting = :never", "#purge_at = :never"]);
        write.value("never", NEVER);
    } else {
        // Another store of the table may purge, and have marked the item.
        write.remove(["#purge_at"]);
    }
}

/// When an item that is written now may be purged, in seconds since 1970.
///
/// Without DynamoDB's time there is no saying: an item with an old `purge_at` could be purged
/// under its holder's feet.
pub(crate) fn purge_at(settings: &Settings, now: Option<Now>, ttl: Duration) -> Option<u64> {
    let expires_at = now?.highest.plus(ttl);
    Some(expires_at.plus(settings.retention?).as_seconds())
}

/// By token, too: a late duplicate of a claim may have been granted the key again.
fn held_by(grant: &Grant) -> Expression {
    let mut write = Expression::default();
    write.value("token", grant.token.get());
    write.value("nonce", grant.nonce);
    write.value("lessee", grant.lessee.as_str());
    write.condition("#nonce = :nonce AND #lessee = :lessee AND #token = :token");
    write
}

/// Everything that a fresh grant sets.
fn grant(
    write: &mut Expression,
    claim: &Claim,
    settings: &Settings,
    now: Option<Now>,
    purge: Purge,
) {
    write.set([
        "#lessee = :lessee",
        "#nonce = :nonce",
        // One more than the last; where there is none, it starts from the time, so it is larger
        // than those of an item that was purged before.
        "#token = if_not_exists(#token, :start) + :one",
        "#beat = :granted",
        "#ttl_ms = :ttl_ms",
    ]);
    write.remove(["#offered_to", "#reserved_until", "#former", "#evicted", "#deleted"]);
    write.value("lessee", claim.lessee.as_str());
    write.value("nonce", claim.nonce);
    let start = now.map_or_else(micros_since_1970, |now| now.highest.as_micros());
    write.value("start", start);
    write.value("one", 1);
    write.value("granted", Beat::GRANTED.get());
    write.value("ttl_ms", claim.ttl);
    expire(write, claim.ttl, settings, now, purge);
}

/// Lets the lease last for `ttl` from now, by DynamoDB's time where it is known.
///
/// Counted from the latest that now can be: a contender who judges by the earliest comes later.
fn expire(
    write: &mut Expression,
    ttl: Duration,
    settings: &Settings,
    now: Option<Now>,
    purge: Purge,
) {
    match now {
        Some(now) => {
            write.set(["#expires_at = :expires_at"]);
            write.value("expires_at", now.highest.plus(ttl).as_millis_up());
        }
        // An earlier grant's would be too early. Contenders go by observation meanwhile.
        None => write.remove(["#expires_at"]),
    }
    if settings.retention.is_none() {
        return last(write, settings);
    }
    match (purge, purge_at(settings, now, ttl)) {
        (Purge::Never, _) => last(write, settings),
        (Purge::AsMarked, Some(purge_at)) => {
            write.set(["#purge_at = if_not_exists(#lasting, :purge_at)"]);
            write.value("purge_at", purge_at);
        }
        (Purge::AsMarked, None) => write.remove(["#purge_at"]),
    }
}

/// Frees the key. The nonce stays, so that a late duplicate of what was released is known.
fn vacate(write: &mut Expression) {
    write.set(["#former = :lessee"]);
    write.remove(["#lessee", "#expires_at", "#evicted"]);
}

/// Keeps a free key for `reserved`, and its item for longer than that.
fn reserve(write: &mut Expression, reserved: Duration, settings: &Settings, now: Option<Now>) {
    match purge_at(settings, now, reserved) {
        Some(purge_at) => {
            write.set(["#purge_at = if_not_exists(#lasting, :purge_at)"]);
            write.value("purge_at", purge_at);
        }
        None => write.remove(["#purge_at"]),
    }
    let until = now.map_or(NO_TIME, |now| now.highest.plus(reserved).as_millis_up());
    write.set([
        "#reserved_until = :reserved_until",
        // So long must it be watched by whoever cannot tell the time.
        "#ttl_ms = :reserved_ms",
    ]);
    write.value("reserved_until", until);
    write.value("reserved_ms", reserved);
}

/// That a lease is not surely over.
fn not_over(write: &mut Expression, settings: &Settings, now: Option<Now>) {
    if let Some(now) = now {
        write.value("over", over_before(settings, now));
        write.condition("(attribute_not_exists(#expires_at) OR #expires_at > :over)");
    }
}

/// What expired by then is over: even by the earliest that now can be, a margin ago.
fn over_before(settings: &Settings, now: Now) -> u64 {
    now.lowest.minus(settings.margin).as_millis_down()
}

/// An item that stayed as it is for its holder's whole ttl.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) sight: Sight,
    /// All its columns, where another program may write them.
    pub(crate) foreign: Option<Foreign>,
}

/// That an item is as it was watched. Absent columns compare as absent.
fn unchanged(write: &mut Expression, gone: &Gone) -> String {
    let sight = &gone.sight;
    let lessee = match &sight.lessee {
        Some(lessee) => {
            write.value("seen_lessee", lessee.as_str());
            "#lessee = :seen_lessee"
        }
        None => "attribute_not_exists(#lessee)",
    };
    let token = match sight.token {
        Some(token) => {
            write.value("seen_token", token.get());
            "#token = :seen_token"
        }
        None => "attribute_not_exists(#token)",
    };
    let beat = match sight.beat {
        Some(beat) => {
            write.value("seen_beat", beat.get());
            "#beat = :seen_beat"
        }
        None => "attribute_not_exists(#beat)",
    };
    let mut condition = format!("{lessee} AND {token} AND {beat}");
    for (name, value) in gone.foreign.iter().flat_map(|foreign| &foreign.columns) {
        condition.push_str(" AND ");
        condition.push_str(&write.payload_is(name, value.clone()));
    }
    condition
}
