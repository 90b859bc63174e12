//! The conditional writes to a KCL table.
//!
//! A granted claim and each write under a grant increment `leaseCounter`, and store the new value in
//! `grantCounter`. A write under a grant requires that both are equal. See docs/design/011-kcl-tables.md.

use std::time::Duration;

use lease_aws::table_client::{ColumnName, Expression};
use lease_core::store::{Beat, Claim, Grant};
use lease_core::{FencingToken, Lessee};

use crate::row::{Row, is_reserved};

pub(crate) fn create() -> Expression {
    let mut write = Expression::default();
    write.condition("attribute_not_exists(#leaseKey)");
    write
}

/// Takes the row if it is unchanged since `seen`.
pub(crate) fn obtain(claim: &Claim, token: FencingToken, seen: &Row) -> Expression {
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
    // A row that was deleted and created again may have the same counter.
    match seen.nonce() {
        Some(nonce) => {
            write.value("seenNonce", nonce);
            write.condition("#grantNonce = :seenNonce");
        }
        None => write.condition("attribute_not_exists(#grantNonce)"),
    }
    match &seen.processor {
        // The processor of a KCL 3 hand-over has stopped. This write ends the hand-over.
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

/// Makes `claim` the holder of `handed`, if that grant is valid and not yet adopted.
pub(crate) fn adopt(handed: &Grant, claim: &Claim) -> Expression {
    let mut write = held_by(handed);
    write.condition("attribute_not_exists(#grantEvicted)");
    grant(&mut write, claim);
    write.set(["#grantToken = #grantToken + :one"]);
    write.value("one", 1);
    write
}

pub(crate) fn heartbeat(grant: &Grant, beat: Beat) -> Expression {
    let mut write = under(grant);
    write.condition("attribute_not_exists(#grantEvicted)");
    write.condition("#grantBeat < :beat");
    write.set(["#grantBeat = :beat", "#grantTtlMs = :ttl"]);
    write.value("beat", beat.get());
    write.value("ttl", grant.ttl);
    write
}

/// KCL workers ignore the reservation.
pub(crate) fn release(grant: &Grant, reserved: Option<Duration>) -> Expression {
    let mut write = under(grant);
    write.set(["#grantFormer = :owner"]);
    write.remove(["#leaseOwner", "#grantEvicted"]);
    if let Some(reserved) = reserved {
        reserve(&mut write, reserved);
    }
    write
}

/// Writes `to` as the owner. KCL workers take a row without an owner at their next listing, but a row with an
/// owner only after its expiry.
pub(crate) fn transfer(grant: &Grant, to: &Lessee, reserved: Duration) -> Expression {
    let mut write = under(grant);
    write.set(["#grantFormer = :owner", "#leaseOwner = :to"]);
    write.value("to", to.as_str());
    write.remove(["#grantEvicted"]);
    reserve(&mut write, reserved);
    write
}

pub(crate) fn update(grant: &Grant) -> Expression {
    under(grant)
}

pub(crate) fn delete(grant: &Grant) -> Expression {
    held_by(grant)
}

/// Does not extend the grant.
pub(crate) fn evict(token: FencingToken) -> Expression {
    let mut write = Expression::default();
    write.value("token", token.get());
    write.condition("#grantToken = :token AND attribute_exists(#leaseOwner)");
    is_granted(&mut write);
    write.set(["#grantEvicted = :true"]);
    write.value("true", true);
    write
}

fn under(grant: &Grant) -> Expression {
    let mut write = held_by(grant);
    count(&mut write, 1);
    write
}

/// A late duplicate of the claim may have obtained the row again with the same nonce, so the token matters.
fn held_by(grant: &Grant) -> Expression {
    let mut write = Expression::default();
    write.value("owner", grant.lessee.as_str());
    write.value("nonce", grant.nonce);
    write.value("fence", grant.token.get());
    write.condition("#leaseOwner = :owner AND #grantNonce = :nonce AND #grantToken = :fence");
    is_granted(&mut write);
    write
}

/// The last write was under one of our grants and did not release the grant.
fn is_granted(write: &mut Expression) {
    write.condition("#leaseCounter = #grantCounter");
    write.condition("attribute_not_exists(#checkpointOwner)");
    write.condition("attribute_not_exists(#grantReservedMs)");
}

fn grant(write: &mut Expression, claim: &Claim) {
    // Counts by two, because a KCL worker may have our name. KCL treats a refused renewal as done if the row
    // has its own name and the next counter (`DynamoDBLeaseRefresher.renewLease`).
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

/// Returns the column of a placeholder, if the column belongs to the lease itself.
pub(crate) fn column(placeholder: &str) -> Option<ColumnName> {
    is_reserved(placeholder).then(|| ColumnName::Renamed(placeholder.to_owned()))
}
