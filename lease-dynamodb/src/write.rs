//! The conditional writes of the store. [`session`] has the writes of sessions.

mod session;

use std::time::Duration;

use lease_aws::table_client::{Expression, Payload};
use lease_core::store::{Beat, Claim, Grant, ServerNow, micros_since_1970};
use lease_core::{FencingToken, Lessee};

use crate::items::{ForeignItem, Observed, lock_client_columns};
use crate::settings::{Settings, TimeMode};

/// The value of `purge_at` on an item that must stay. The table's TTL ignores values that are not
/// numbers.
pub(crate) const NEVER: &str = "never";

/// The end of a reservation that was written without knowledge of DynamoDB's time.
const NO_TIME: u64 = (1 << 53) - 1;

/// Never expires. Earlier versions of this crate take an item that was unchanged for its ttl.
pub(crate) const UNDER_SESSION: Duration = Duration::from_millis((1 << 53) - 1);

pub(crate) use session::{end_mark, end_session, obtain_under};

/// Whether the table's TTL may purge an item after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purge {
    /// Purges unless the item is marked as lasting. DynamoDB refuses a write to another program's
    /// item.
    AsMarked,
    /// Another program made the item, or the item has attributes.
    Never,
}

impl Purge {
    fn after_grant(self, claim: &Claim) -> Self {
        if claim.attributes.is_empty() { self } else { Self::Never }
    }
}

pub(crate) fn obtain(
    claim: &Claim,
    payload: Payload,
    settings: &Settings,
    now: Option<ServerNow>,
    stale: Option<&StaleItem>,
    purge: Purge,
) -> Expression {
    let mut write = Expression::default();
    let purge = purge.after_grant(claim);
    may_obtain(&mut write, settings, now, stale);
    // The nonce of this claim shows that the claim was granted before, and perhaps released. So
    // this request is a duplicate.
    write.condition("NOT #nonce = :nonce");
    may_be_leased(&mut write, settings);
    if settings.retention.is_some() && purge == Purge::AsMarked {
        write.condition(
            "(attribute_not_exists(#lease_key) OR attribute_exists(#token) \
             OR attribute_exists(#lasting))",
        );
    }
    grant(&mut write, claim, settings, now, purge);
    write.set_all_payload(payload);
    write
}

fn may_be_leased(write: &mut Expression, settings: &Settings) {
    write.value("max", FencingToken::MAX.get());
    write.condition("(attribute_not_exists(#token) OR #token < :max)");
    if !settings.lock_client_items {
        for name in lock_client_columns(&settings.columns) {
            write.condition(format!("attribute_not_exists({name})"));
        }
    }
    if settings.existing_only {
        write.condition("attribute_exists(#lease_key) AND attribute_not_exists(#deleted)");
    }
}

fn may_obtain(
    write: &mut Expression,
    settings: &Settings,
    now: Option<ServerNow>,
    stale: Option<&StaleItem>,
) {
    // (a) The key has no holder, and no reservation for another lessee.
    let mut unreserved =
        "attribute_not_exists(#reserved_until) OR #offered_to = :lessee".to_owned();
    if let Some(now) = now {
        write.value("passed", now.lowest.as_millis_down());
        unreserved.push_str(" OR #reserved_until <= :passed");
    }
    let no_holder = no_holder(write);
    let mut ways = vec![format!("({no_holder}) AND ({unreserved})")];
    // (b) The item was observed for the holder's whole ttl, and is still unchanged.
    if let Some(stale) = stale {
        ways.push(unchanged(write, stale, settings));
    }
    // (c) The lease expired in DynamoDB's own time.
    if let (TimeMode::ServerTimeAndObservation, Some(now)) = (settings.time_mode, now) {
        write.value("over", expired_before(settings, now));
        let mut expired = "#expires_at <= :over".to_owned();
        // The lock client does not write `expires_at`. An item that the client took has an earlier
        // grant's value.
        for name in lock_client_columns(&settings.columns).filter(|_| settings.lock_client_items) {
            expired.push_str(" AND attribute_not_exists(");
            expired.push_str(name);
            expired.push(')');
        }
        ways.push(expired);
    }
    // DynamoDB refuses redundant parentheses.
    write.condition(format!("({})", ways.join(" OR ")));
}

fn no_holder(write: &mut Expression) -> &'static str {
    // Other programs write an absent owner as NULL, or as a string that sorts before every lessee.
    write.value("null", "NULL");
    write.value("blank", " ");
    "attribute_not_exists(#lessee) OR attribute_type(#lessee, :null) OR #lessee < :blank"
}

/// Makes the lessee of `claim` the holder of the grant `handed`, if the grant is current and no
/// process has adopted it.
pub(crate) fn adopt(
    handed: &Grant,
    claim: &Claim,
    payload: Payload,
    settings: &Settings,
    now: Option<ServerNow>,
) -> Expression {
    let mut write = Expression::default();
    write.value("handed", handed.nonce);
    write.value("former_lessee", handed.lessee.as_str());
    write.value("former_token", handed.token.get());
    write.condition("#nonce = :handed AND #lessee = :former_lessee AND #token = :former_token");
    write.condition("attribute_not_exists(#evicted)");
    not_expired(&mut write, settings, now);
    grant(&mut write, claim, settings, now, Purge::AsMarked.after_grant(claim));
    write.set_all_payload(payload);
    write
}

/// Extends a grant, unless its lease has certainly expired.
///
/// The refusal is safe: a holder stops before the ttl has passed, and the condition allows a margin
/// after the ttl.
pub(crate) fn heartbeat(
    grant: &Grant,
    beat: Beat,
    settings: &Settings,
    now: Option<ServerNow>,
) -> Expression {
    let mut write = held_by(grant);
    not_expired(&mut write, settings, now);
    write.value("beat", beat.get());
    write.condition("attribute_not_exists(#evicted)");
    // The column `beat` exists, since the grant wrote the first number.
    write.condition("#beat < :beat");
    write.set(["#beat = :beat", "#ttl_ms = :ttl"]);
    write.value("ttl", grant.ttl);
    // A heartbeat under a session is the last heartbeat before a hand-over.
    write.remove(SESSION);
    expire(&mut write, grant.ttl, settings, now, Purge::AsMarked);
    write
}

/// Sets columns that the grant's write could not compute, because DynamoDB's time or the attributes
/// were unknown. Changes nothing after a heartbeat, which has newer values.
pub(crate) fn complete_grant(
    grant: &Grant,
    settings: &Settings,
    now: Option<ServerNow>,
    purge: Purge,
) -> Expression {
    let mut write = held_by(grant);
    write.value("granted", Beat::GRANTED.get());
    write.condition("#beat = :granted");
    match grant.parent {
        None => expire(&mut write, grant.ttl, settings, now, purge),
        Some(_) => keep(&mut write, settings, purge),
    }
    write
}

/// A release without a reservation also applies to an expired lease.
pub(crate) fn release(
    grant: &Grant,
    settings: &Settings,
    now: Option<ServerNow>,
    reserved: Option<Duration>,
) -> Expression {
    let mut write = held_by(grant);
    clear_holder(&mut write);
    match reserved {
        Some(reserved) => {
            not_expired(&mut write, settings, now);
            reserve(&mut write, reserved, settings, now);
        }
        // No grant and no heartbeat of a lease under a session could set `purge_at`.
        None if grant.parent.is_some() => purge_from_now(&mut write, settings, now),
        None => (),
    }
    write
}

pub(crate) fn transfer(
    grant: &Grant,
    to: &Lessee,
    settings: &Settings,
    now: Option<ServerNow>,
    reserved: Duration,
) -> Expression {
    let mut write = held_by(grant);
    not_expired(&mut write, settings, now);
    clear_holder(&mut write);
    reserve(&mut write, reserved, settings, now);
    write.set(["#offered_to = :offered_to"]);
    write.value("offered_to", to.as_str());
    write
}

pub(crate) fn require_grant(
    grant: &Grant,
    settings: &Settings,
    now: Option<ServerNow>,
) -> Expression {
    let mut write = held_by(grant);
    not_expired(&mut write, settings, now);
    write
}

pub(crate) fn evict(
    token: FencingToken,
    settings: &Settings,
    now: Option<ServerNow>,
) -> Expression {
    let mut write = Expression::default();
    write.value("token", token.get());
    // Other programs write an absent owner as NULL, or as a string that sorts before every lessee.
    // The comparison is false for NULL and for an absent owner.
    write.value("blank", " ");
    // The holder of a lease under a session sends no heartbeat that the store could refuse.
    write.condition("#token = :token AND #lessee >= :blank AND attribute_not_exists(#parent)");
    not_expired(&mut write, settings, now);
    write.set(["#evicted = :true"]);
    write.value("true", true);
    write
}

/// Creates a lasting item, if the key has no item or only the item of a deleted record.
pub(crate) fn create(settings: &Settings) -> Expression {
    let mut write = Expression::default();
    write.condition("(attribute_not_exists(#lease_key) OR attribute_exists(#deleted))");
    write.remove(["#deleted"]);
    // An update that sets no column might not create an item.
    write.set(["#beat = :granted"]);
    write.value("granted", Beat::GRANTED.get());
    never_purge(&mut write, settings);
    write
}

pub(crate) fn count(name: &str, settings: &Settings) -> Expression {
    let mut write = Expression::default();
    write.count_payload(name);
    write.remove(["#deleted"]);
    never_purge(&mut write, settings);
    write
}

pub(crate) fn never_purge(write: &mut Expression, settings: &Settings) {
    if settings.retention.is_some() {
        write.set(["#lasting = :never", "#purge_at = :never"]);
        write.value("never", NEVER);
    } else {
        // Another store of the table may have purging on, and may have marked the item.
        write.remove(["#purge_at"]);
    }
}

/// In seconds since 1970. `None` without DynamoDB's time: the TTL could purge the item while its
/// lease is held.
pub(crate) fn purge_at(settings: &Settings, now: Option<ServerNow>, ttl: Duration) -> Option<u64> {
    let expires_at = now?.highest.plus(ttl);
    Some(expires_at.plus(settings.retention?).as_seconds())
}

/// The nonce is not enough: DynamoDB may have granted the key to a late duplicate of the same
/// claim.
fn held_by(grant: &Grant) -> Expression {
    let mut write = Expression::default();
    write.value("token", grant.token.get());
    write.value("nonce", grant.nonce);
    write.value("lessee", grant.lessee.as_str());
    write.condition("#nonce = :nonce AND #lessee = :lessee AND #token = :token");
    write
}

fn grant(
    write: &mut Expression,
    claim: &Claim,
    settings: &Settings,
    now: Option<ServerNow>,
    purge: Purge,
) {
    write.set([
        "#lessee = :lessee",
        "#nonce = :nonce",
        // Without a last token, the token starts from the time. So the token exceeds the tokens of
        // a purged item.
        "#token = if_not_exists(#token, :start) + :one",
        "#beat = :granted",
        "#ttl_ms = :ttl",
    ]);
    write.remove(["#offered_to", "#reserved_until", "#former", "#evicted", "#deleted"]);
    write.value("lessee", claim.lessee.as_str());
    write.value("nonce", claim.nonce);
    let start = now.map_or_else(micros_since_1970, |now| now.highest.as_micros());
    write.value("start", start);
    write.value("one", 1);
    write.value("granted", Beat::GRANTED.get());
    let Some(session) = &claim.parent else {
        write.value("ttl", claim.ttl);
        write.remove(SESSION);
        return expire(write, claim.ttl, settings, now, purge);
    };
    write.value("ttl", UNDER_SESSION);
    write.set(["#parent = :parent", "#parent_token = :parent_token"]);
    write.value("parent", session.key.as_str());
    write.value("parent_token", session.token.get());
    write.remove(["#expires_at"]);
    keep(write, settings, purge);
}

fn keep(write: &mut Expression, settings: &Settings, purge: Purge) {
    match purge {
        Purge::Never => never_purge(write, settings),
        Purge::AsMarked => write.remove(["#purge_at"]),
    }
}

/// Counts from the upper bound of the time. Contenders compare with the lower bound, which reaches
/// the expiry later.
fn expire(
    write: &mut Expression,
    ttl: Duration,
    settings: &Settings,
    now: Option<ServerNow>,
    purge: Purge,
) {
    match now {
        Some(now) => {
            write.set(["#expires_at = :end"]);
            write.value("end", now.highest.plus(ttl).as_millis_up());
        }
        // An earlier grant's expiry would be too early. Without an expiry, contenders use
        // observation.
        None => write.remove(["#expires_at"]),
    }
    if settings.retention.is_none() {
        return never_purge(write, settings);
    }
    match (purge, purge_at(settings, now, ttl)) {
        (Purge::Never, _) => never_purge(write, settings),
        (Purge::AsMarked, Some(purge_at)) => {
            write.set(["#purge_at = if_not_exists(#lasting, :purge)"]);
            write.value("purge", purge_at);
        }
        (Purge::AsMarked, None) => write.remove(["#purge_at"]),
    }
}

/// Keeps the nonce, which detects late duplicates of the released claim.
fn clear_holder(write: &mut Expression) {
    write.set(["#former = :lessee"]);
    write.remove(["#lessee", "#expires_at", "#evicted"]);
    write.remove(SESSION);
}

fn purge_from_now(write: &mut Expression, settings: &Settings, now: Option<ServerNow>) {
    if let Some(purge_at) = purge_at(settings, now, Duration::ZERO) {
        write.set(["#purge_at = if_not_exists(#lasting, :purge)"]);
        write.value("purge", purge_at);
    }
}

const SESSION: [&str; 2] = ["#parent", "#parent_token"];

fn reserve(
    write: &mut Expression,
    reserved: Duration,
    settings: &Settings,
    now: Option<ServerNow>,
) {
    match purge_at(settings, now, reserved) {
        Some(purge_at) => {
            write.set(["#purge_at = if_not_exists(#lasting, :purge)"]);
            write.value("purge", purge_at);
        }
        None => write.remove(["#purge_at"]),
    }
    let until = now.map_or(NO_TIME, |now| now.highest.plus(reserved).as_millis_up());
    write.set([
        "#reserved_until = :until",
        // A contender that does not know DynamoDB's time observes the item for this long.
        "#ttl_ms = :reserved",
    ]);
    write.value("until", until);
    write.value("reserved", reserved);
}

/// Requires that a lease has not certainly expired. Without an expiry, contenders use observation.
fn not_expired(write: &mut Expression, settings: &Settings, now: Option<ServerNow>) {
    if let Some(now) = now {
        write.value("over", expired_before(settings, now));
        write.condition("NOT #expires_at <= :over");
    }
}

/// The lower bound of the time, less the margin.
fn expired_before(settings: &Settings, now: ServerNow) -> u64 {
    now.lowest.minus(settings.margin).as_millis_down()
}

#[derive(Debug)]
pub(crate) struct StaleItem {
    pub(crate) observed: Observed,
    /// The whole item, if another program may write it. Such an item has a
    /// [proof](ForeignItem::proof).
    pub(crate) foreign: Option<ForeignItem>,
}

/// A column that was absent must be absent.
fn unchanged(write: &mut Expression, stale: &StaleItem, settings: &Settings) -> String {
    let observed = &stale.observed;
    let lessee = match &observed.lessee {
        Some(lessee) => {
            write.value("seen_lessee", lessee.as_str());
            "#lessee = :seen_lessee"
        }
        None => "attribute_not_exists(#lessee)",
    };
    let token = match observed.token {
        Some(token) => {
            write.value("seen_token", token.get());
            "#token = :seen_token"
        }
        None => "attribute_not_exists(#token)",
    };
    let beat = match observed.beat {
        Some(beat) => {
            write.value("seen_beat", beat.get());
            "#beat = :seen_beat"
        }
        None => "attribute_not_exists(#beat)",
    };
    let mut condition = format!("{lessee} AND {token} AND {beat}");
    let proof = stale.foreign.as_ref().and_then(|foreign| foreign.proof(&settings.columns));
    for (name, value) in proof.into_iter().flatten() {
        condition.push_str(" AND ");
        condition.push_str(&write.payload_is(name, value.clone()));
    }
    condition
}

#[cfg(test)]
mod tests;
