//! The conditional writes of sessions.

use lease_aws::table_client::{Expression, Payload};
use lease_core::store::{Claim, Parent, ServerNow, Vacancy};

use super::{
    Purge, SESSION, StaleItem, expired_before, grant, may_be_leased, no_holder, purge_from_now,
    unchanged,
};
use crate::items::Item;
use crate::settings::{Settings, TimeMode};

/// Takes a key that is still as in `vacancy`.
///
/// The write has no condition on a reservation or on the time. Such a condition may become true
/// later, and then DynamoDB would grant a late copy of a refused claim.
pub(crate) fn obtain_under(
    claim: &Claim,
    vacancy: &Vacancy,
    payload: Payload,
    settings: &Settings,
    now: Option<ServerNow>,
    purge: Purge,
) -> Expression {
    let mut write = Expression::default();
    let purge = purge.after_grant(claim);
    match vacancy.token() {
        Some(token) => {
            write.value("seen_token", token.get());
            write.condition("#token = :seen_token");
        }
        None => write.condition("attribute_not_exists(#token)"),
    }
    let free = no_holder(&mut write);
    match vacancy.former() {
        Some(former) => {
            write.value("former_key", former.key.as_str());
            write.value("former_token", former.token.get());
            write.condition(format!(
                "({free} OR #parent = :former_key AND #parent_token = :former_token)"
            ));
        }
        None => write.condition(format!("({free})")),
    }
    may_be_leased(&mut write, settings);
    if settings.retention.is_some() && purge == Purge::AsMarked && vacancy.token().is_none() {
        write.condition("(attribute_not_exists(#lease_key) OR attribute_exists(#lasting))");
    }
    grant(&mut write, claim, settings, now, purge);
    write.set_all_payload(payload);
    write
}

/// Removes the lessee of `session`, if the session is over. `None` if neither DynamoDB's time nor
/// an observation can show the end.
pub(crate) fn end_session(
    session: &Parent,
    settings: &Settings,
    now: Option<ServerNow>,
    stale: Option<&StaleItem>,
) -> Option<Expression> {
    let mut write = Expression::default();
    let mut ways = Vec::new();
    if let Some(stale) = stale {
        ways.push(unchanged(&mut write, stale, settings));
    }
    if let (TimeMode::ServerTimeAndObservation, Some(now)) = (settings.time_mode, now) {
        write.value("over", expired_before(settings, now));
        ways.push("#expires_at <= :over".to_owned());
    }
    write.value("token", session.token.get());
    write.condition("#token = :token AND attribute_exists(#lessee)");
    match ways.as_slice() {
        [] => return None,
        [only] => write.condition(only.clone()),
        _ => write.condition(format!("({})", ways.join(" OR "))),
    }
    write.set(["#former = #lessee"]);
    write.remove(["#lessee", "#expires_at", "#evicted"]);
    write.remove(SESSION);
    Some(write)
}

/// Marks the end of a session whose token is in no item. Without the mark, DynamoDB might grant a
/// late copy of the session's own claim under the same token.
pub(crate) fn end_mark(
    session: &Parent,
    settings: &Settings,
    now: Option<ServerNow>,
    item: Option<&Item>,
) -> Expression {
    let mut write = Expression::default();
    write.set(["#token = :token"]);
    write.value("token", session.token.get());
    if item.is_some() {
        write.condition("attribute_not_exists(#token)");
        return write;
    }
    write.condition("attribute_not_exists(#lease_key)");
    write.set(["#deleted = :true"]);
    write.value("true", true);
    purge_from_now(&mut write, settings, now);
    write
}
