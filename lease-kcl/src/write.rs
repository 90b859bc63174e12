//! The conditional writes to a KCL table: what each requires and what it changes.
//!
//! Every one of them moves `leaseCounter` on, as KCL's own do, so that a worker of KCL which has
//! seen the row before is refused; and notes it in `grantCounter`. What stands under a grant of ours
//! requires that both are equal: then nobody else has written an owner since, not even the same one.

use std::time::Duration;

use lease_core::{Beat, Claim, FencingToken, Grant, Lessee};
use lease_dynamodb::parts::Expression;

use super::row::{Row, is_reserved};

/// That there is no row yet.
pub(super) fn create() -> Expression {
    let mut write = Expression::default();
    write.condition("attribute_not_exists(#leaseKey)");
    write
}

/// Takes a row that is as `seen`.
pub(super) fn obtain(claim: &Claim, token: FencingToken, seen: &Row) -> Expression {
    let mut write = Expression::default();
    write.value("seenCounter", seen.counter());
    write.condition("#leaseCounter = :seenCounter");
    match &seen.owner {
        Some(owner) => {
            write.value("seenOwner", owner.as_str());
            write.condition("#leaseOwner = :seenOwner");
        }
        None => write.condition("attribute_not_exists(#leaseOwner)"),
    }
    // A row that was deleted and made again may have the same counter.
    match seen.nonce() {
        Some(nonce) => {
            write.value("seenNonce", nonce);
            write.condition("#grantNonce = :seenNonce");
        }
        None => write.condition("attribute_not_exists(#grantNonce)"),
    }
    match &seen.processor {
        // It died while KCL 3 had it hand over: with it, the hand-over is over.
        Some(processor) => {
            write.value("seenProcessor", processor.as_str());
            write.condition("#checkpointOwner = :seenProcessor");
            write.remove(["#checkpointOwner"]);
        }
        None => write.condition("attribute_not_exists(#checkpointOwner)"),
    }
    grant(&mut write, claim);
    write.set(["#grantToken = :token"]);
    write.value("token", token.get());
    write
}

/// Makes `claim` the holder of `handed`, while that stands and nobody has adopted it.
pub(super) fn adopt(handed: &Grant, claim: &Claim) -> Expression {
    let mut write = held_by(handed);
    write.condition("attribute_not_exists(#grantEvicted)");
    grant(&mut write, claim);
    write.set(["#grantToken = #grantToken + :one"]);
    write.value("one", 1);
    write
}

/// Keeps a grant alive.
pub(super) fn heartbeat(grant: &Grant, beat: Beat) -> Expression {
    let mut write = standing(grant);
    write.condition("attribute_not_exists(#grantEvicted)");
    write.condition("#grantBeat < :beat");
    write.set(["#grantBeat = :beat", "#grantTtlMs = :ttl"]);
    write.value("beat", beat.get());
    write.value("ttl", grant.ttl);
    write
}

/// Frees the row of a grant, for later where it is `reserved`.
///
/// It has no owner then: whatever is reserved, a worker of KCL takes it at its next look.
pub(super) fn release(grant: &Grant, reserved: Option<Duration>) -> Expression {
    let mut write = standing(grant);
    write.set(["#grantFormer = :owner"]);
    write.remove(["#leaseOwner", "#grantEvicted"]);
    if let Some(reserved) = reserved {
        reserve(&mut write, reserved);
    }
    write
}

/// Frees the row of a grant for one lessee.
///
/// It is written as that one's own, which KCL understands: a row without an owner its workers take
/// at their next look, whatever their share; one that nobody renews, when it has run out.
pub(super) fn transfer(grant: &Grant, to: &Lessee, reserved: Duration) -> Expression {
    let mut write = standing(grant);
    write.set(["#grantFormer = :owner", "#leaseOwner = :to"]);
    write.value("to", to.as_str());
    write.remove(["#grantEvicted"]);
    reserve(&mut write, reserved);
    write
}

/// Changes attributes under a grant.
pub(super) fn update(grant: &Grant) -> Expression {
    standing(grant)
}

/// That a grant stands, for a delete.
pub(super) fn delete(grant: &Grant) -> Expression {
    held_by(grant)
}

/// Marks the grant with `token` as ended from outside. It is no sign of life.
pub(super) fn evict(token: FencingToken) -> Expression {
    let mut write = Expression::default();
    write.value("token", token.get());
    write.condition("#grantToken = :token AND attribute_exists(#leaseOwner)");
    is_granted(&mut write);
    write.set(["#grantEvicted = :true"]);
    write.value("true", true);
    write
}

/// Moves the counter on, if `grant` stands.
fn standing(grant: &Grant) -> Expression {
    let mut write = held_by(grant);
    count(&mut write, 1);
    write
}

/// By token, too: a late duplicate of a claim may have been granted the row again.
fn held_by(grant: &Grant) -> Expression {
    let mut write = Expression::default();
    write.value("owner", grant.lessee.as_str());
    write.value("nonce", grant.nonce);
    write.value("fence", grant.token.get());
    write.condition("#leaseOwner = :owner AND #grantNonce = :nonce AND #grantToken = :fence");
    is_granted(&mut write);
    write
}

/// That the last word on the row is a grant of ours, which was not given back.
fn is_granted(write: &mut Expression) {
    write.condition("#leaseCounter = #grantCounter");
    write.condition("attribute_not_exists(#checkpointOwner)");
    write.condition("attribute_not_exists(#grantReservedMs)");
}

/// Everything that a fresh grant sets, but its token.
fn grant(write: &mut Expression, claim: &Claim) {
    // By two: where its own name stands there with the next counter, a worker of KCL takes a renewal
    // that was refused for one that was done (`DynamoDBLeaseRefresher.renewLease`), and one may be
    // called as we are.
    count(write, 2);
    write.set([
        "#leaseOwner = :lessee",
        "#grantNonce = :claimNonce",
        "#grantBeat = :granted",
        "#grantTtlMs = :ttl",
    ]);
    write.remove(["#grantReservedMs", "#grantFormer", "#grantEvicted"]);
    write.value("lessee", claim.lessee.as_str());
    write.value("claimNonce", claim.nonce);
    write.value("granted", Beat::GRANTED.get());
    write.value("ttl", claim.ttl);
}

fn count(write: &mut Expression, step: u64) {
    write.set(["#leaseCounter = #leaseCounter + :step", "#grantCounter = #leaseCounter + :step"]);
    write.value("step", step);
}

fn reserve(write: &mut Expression, reserved: Duration) {
    write.set(["#grantReservedMs = :reserved"]);
    write.value("reserved", reserved);
}

/// The column behind a placeholder, which is called like it.
pub(super) fn column(placeholder: &str) -> Option<String> {
    is_reserved(placeholder).then(|| placeholder.to_owned())
}
