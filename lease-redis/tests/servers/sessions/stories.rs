//! Requests in one order each, and the promises that the scripts keep.

use redis::Value;

use super::replies::Answer;
use super::script_server::{Claim, ONE, Server, THREE, TWO};

/// The promise that a story found broken, if any.
pub(super) type Kept = Result<(), &'static str>;

fn kept(is_kept: bool, promise: &'static str) -> Kept {
    is_kept.then_some(()).ok_or(promise)
}

/// The session has the token 7. Returns the child's token.
fn child(server: &mut Server) -> u64 {
    server.obtain_under(&Claim::new(ONE, None)).token()
}

fn lease_with_ttl(server: &mut Server) -> u64 {
    server.obtain_under(&Claim { session: None, ..Claim::new(ONE, None) }).token()
}

fn refused_by_a_lock(server: &mut Server) -> Claim {
    server.lock(ONE);
    let claim = Claim { waits: "1", ..Claim::new(TWO, None) };
    assert!(server.obtain_under(&claim).is_held());
    claim
}

pub(super) fn claim_that_has_seen_another_token(server: &mut Server) -> Kept {
    let seen = child(server);
    server.release(ONE);
    server.obtain_under(&Claim::new(TWO, Some(seen))).token();
    server.release(TWO);
    let late = server.obtain_under(&Claim::new(THREE, Some(seen)));
    kept(late.is_held(), "a claim that has seen a smaller token is refused")
}

pub(super) fn proof_of_a_former_session(server: &mut Server) -> Kept {
    let seen = Some(child(server));
    let wrong = Claim { former: Some(6), ..Claim::new(TWO, seen) };
    kept(server.obtain_under(&wrong).is_held(), "the proof names the token of the session")?;
    let right = Claim { former: Some(7), ..wrong };
    kept(server.obtain_under(&right).is_granted(), "the key of an ended session is granted")
}

pub(super) fn proof_of_another_session(server: &mut Server) -> Kept {
    let seen = Some(child(server));
    server.command("HSET lease:{job} parent other");
    let claim = Claim { former: Some(7), ..Claim::new(TWO, seen) };
    kept(server.obtain_under(&claim).is_held(), "the proof names the key of the session")
}

pub(super) fn vacancy_of_a_held_key(server: &mut Server) -> Kept {
    let seen = Some(lease_with_ttl(server));
    kept(server.obtain_under(&Claim::new(TWO, seen)).is_held(), "a lease with a ttl is kept")
}

pub(super) fn key_reserved_for_another(server: &mut Server) -> Kept {
    let token = child(server);
    server.transfer(ONE, token, "b");
    let seen = Some(token);
    let other = Claim::new(TWO, seen);
    kept(server.obtain_under(&other).is_held(), "a reserved key is granted to no other")?;
    let meant = Claim { lessee: "b", ..Claim::new(THREE, seen) };
    let granted = server.obtain_under(&meant);
    kept(granted.is_granted(), "a reserved key is granted to its lessee")?;
    server.release(THREE);
    kept(server.read().reserved.is_none(), "a grant ends the reservation")
}

pub(super) fn reservation_that_has_passed(server: &mut Server) -> Kept {
    let token = child(server);
    server.transfer(ONE, token, "b");
    let seen = Some(token);
    server.command("HSET lease:{job} until 1");
    kept(server.obtain_under(&Claim::new(TWO, seen)).is_granted(), "the reservation has passed")
}

pub(super) fn repeated_claim(server: &mut Server) -> Kept {
    let token = child(server);
    let again = server.obtain_under(&Claim::new(ONE, None));
    kept(again == Answer::Again(token), "a repeated claim gets its grant again")?;
    let other = server.obtain_under(&Claim::new(TWO, None));
    kept(other.is_held(), "another claim does not get the grant")?;
    server.release(ONE);
    let late = server.obtain_under(&Claim::new(ONE, None));
    kept(late.is_held(), "a claim whose grant was released is refused")
}

pub(super) fn refusal_by_a_lock(server: &mut Server) -> Kept {
    let claim = refused_by_a_lock(server);
    kept(server.command("GET lease:{job}").get(33..34) == Some("w"), "the lock is marked")?;
    let outlasts = server.left("lease:{job}:refused") > server.left("lease:{job}");
    kept(outlasts, "the token beside the lock outlasts the lock")?;
    server.release(ONE);
    kept(server.obtain_under(&claim).is_held(), "a refusal by a lock is final")?;
    let read = server.read();
    kept(read.token.is_some() && read.has_ended, "a read shows the token beside the lock")?;
    let next = server.obtain_under(&Claim::new(THREE, read.token));
    kept(next.is_granted(), "a claim that has seen this token is granted")
}

pub(super) fn refusal_by_an_end_mark(server: &mut Server) -> Kept {
    assert!(server.end(5));
    server.command("HSET lease:{job} kept 1");
    server.command("PEXPIRE lease:{job} 600000");
    let claim = Claim::new(TWO, None);
    assert!(server.obtain_under(&claim).is_held());
    kept(server.left("lease:{job}") > 600_000, "the record is kept for the retention")?;
    server.obtain(ONE).token();
    server.release(ONE);
    kept(server.obtain_under(&claim).is_held(), "a refusal by a record is final")
}

pub(super) fn refusal_of_a_claim_that_saw_an_end(server: &mut Server) -> Kept {
    assert!(server.end(5));
    server.obtain(ONE).token();
    let claim = Claim::new(TWO, Some(5));
    assert!(server.obtain_under(&claim).is_held());
    server.release(ONE);
    assert!(server.end(5));
    kept(server.obtain_under(&claim).is_held(), "a second end mark grants no refused claim")
}

pub(super) fn plain_lease_on_the_key_of_a_child(server: &mut Server) -> Kept {
    child(server);
    server.release(ONE);
    server.obtain(TWO).token();
    kept(server.left("lease:{job}") > 0, "the record expires")?;
    server.release(TWO);
    let late = server.obtain_under(&Claim::new(THREE, None));
    kept(late.is_held(), "a plain lease does not forget the token of the key")
}

pub(super) fn child_lasts(server: &mut Server) -> Kept {
    let seen = child(server);
    server.release(ONE);
    server.obtain_under(&Claim::new(TWO, Some(seen))).token();
    kept(server.left("lease:{job}") == -1, "the record of a child does not expire")?;
    kept(server.read().session == Some(7), "the record names the session")
}

pub(super) fn claim_without_a_session(server: &mut Server) -> Kept {
    let seen = Some(child(server));
    let plain = Claim { session: None, former: Some(7), ..Claim::new(TWO, seen) };
    server.obtain_under(&plain).token();
    kept(server.read().session.is_none(), "the claim had no session")?;
    kept(server.left("lease:{job}") > 0, "the record expires")
}

pub(super) fn released_child(server: &mut Server) -> Kept {
    child(server);
    server.release(ONE);
    kept(!server.read().is_held, "the key is free")?;
    kept(server.left("lease:{job}") > 0, "the record expires after its release")
}

pub(super) fn released_child_with_attributes(server: &mut Server) -> Kept {
    let claim = Claim { attributes: &["n", "{\"N\":\"1\"}"], ..Claim::new(ONE, None) };
    server.obtain_under(&claim).token();
    server.release(ONE);
    kept(server.left("lease:{job}") == -1, "a record with attributes never expires")
}

pub(super) fn transferred_child(server: &mut Server) -> Kept {
    let token = child(server);
    server.transfer(ONE, token, "b");
    let read = server.read();
    kept(read.reserved.as_deref() == Some("b"), "a read shows the reservation")?;
    kept(server.left("lease:{job}") > 0, "the record expires after its transfer")
}

pub(super) fn heartbeat_of_a_child(server: &mut Server) -> Kept {
    let token = child(server);
    assert!(server.heartbeat(ONE, token));
    let read = server.read();
    kept(read.is_held && read.session.is_none(), "a heartbeat takes a child out of its session")?;
    kept(server.left("lease:{job}") > 0, "the record expires")?;
    let claim = Claim { former: Some(7), ..Claim::new(TWO, Some(token)) };
    server.expire();
    kept(server.obtain_under(&claim).is_held(), "the end of the session does not free the key")
}

pub(super) fn adopted_child(server: &mut Server) -> Kept {
    let token = child(server);
    server.adopt(ONE, token, TWO, None).token();
    kept(server.read().session.is_none(), "the adopter has no session")
}

pub(super) fn adoption_under_a_session(server: &mut Server) -> Kept {
    server.lock(ONE);
    server.adopt(ONE, 5, TWO, Some(7)).token();
    kept(server.read().session == Some(7), "the adopter has a session")
}

pub(super) fn child_with_a_queue(server: &mut Server) -> Kept {
    server.command("RPUSH lease:{job}:queue x");
    child(server);
    kept(server.command("EXISTS lease:{job}:queue") == "0", "a child has no queue")
}

pub(super) fn eviction_of_a_child(server: &mut Server) -> Kept {
    child(server);
    kept(server.evict(ONE) == Value::Int(2), "a child is not evicted")
}

pub(super) fn end_of_a_lock(server: &mut Server) -> Kept {
    server.lock(ONE);
    kept(!server.end(5), "a lock that is held is not ended")?;
    assert!(server.heartbeat(ONE, 9));
    kept(server.end(5), "a larger token shows the end")?;
    kept(server.read().is_held, "a later lock is kept")
}

pub(super) fn end_of_a_reserved_lock(server: &mut Server) -> Kept {
    server.lock(ONE);
    server.reserve(ONE, 5);
    let before = server.read();
    kept(before.reserved.as_deref() == Some(""), "a read shows the reservation of a lock")?;
    kept(before.has_ended, "the lock of a reserved key has ended")?;
    kept(server.end(5), "the lock has ended")?;
    let read = server.read();
    kept(read.has_ended && read.token == Some(5), "the end is written")?;
    kept(read.reserved.as_deref() == Some(""), "the reservation is kept")
}

pub(super) fn end_of_a_record(server: &mut Server) -> Kept {
    let token = lease_with_ttl(server);
    kept(server.end(5), "a larger token shows the end")?;
    kept(!server.end(token), "a lease that is held is not ended")?;
    kept(!server.read().has_ended, "a read shows that the lease is held")?;
    server.command("HSET lease:{job} waits 1");
    server.expire();
    kept(server.end(token), "an expired lease is ended")?;
    kept(server.read().has_ended, "the end is written")?;
    kept(server.command("HEXISTS lease:{job} waits") == "0", "waiters learn of the end")
}

pub(super) fn end_of_an_absent_record(server: &mut Server) -> Kept {
    kept(server.end(5), "an absent lock has ended")?;
    let read = server.read();
    kept(read.has_ended && read.token == Some(5), "the end is written")?;
    kept(server.left("lease:{job}") > 0, "the end mark expires")
}

fn queue(server: &Server) {
    let now = server.command("EVAL \"return redis.call('TIME')[1]\" 0");
    server.command(&format!("RPUSH lease:{{job}}:queue {TWO}"));
    let place = format!("1 {now}000 600000 grants b");
    server.command(&format!("HSET lease:{{job}}:waiters {TWO} \"{place}\""));
}

pub(super) fn end_of_a_lock_with_a_queue(server: &mut Server) -> Kept {
    let mut client = server.listener();
    let mut listener = client.as_pubsub();
    listener.subscribe("grants").unwrap();
    queue(server);
    kept(server.end(5), "an absent lock has ended")?;
    let granted = server.command("GET lease:{job}").starts_with(&format!("{TWO}h"));
    kept(granted, "the key is granted to the next waiter")
}

pub(super) fn end_of_a_record_with_a_queue(server: &mut Server) -> Kept {
    let mut client = server.listener();
    let mut listener = client.as_pubsub();
    listener.subscribe("grants").unwrap();
    let token = lease_with_ttl(server);
    queue(server);
    server.expire();
    kept(server.end(token), "the lease has expired")?;
    kept(server.command("TYPE lease:{job}") == "hash", "the record is kept")
}

pub(super) fn count_of_a_new_key(server: &mut Server) -> Kept {
    kept(server.count() == "1" && server.count() == "2", "a count adds one")?;
    kept(!server.read().has_ended, "a key without a grant shows no end")?;
    kept(server.command("TYPE lease:{job}") == "hash", "the key is a record")?;
    kept(server.command("ZSCORE lease:index job") == "0", "the record is listed")
}

pub(super) fn count_of_a_lock(server: &mut Server) -> Kept {
    server.lock(ONE);
    kept(server.count() == "held", "a lock gets no attributes")
}

pub(super) fn count_of_a_large_number(server: &mut Server) -> Kept {
    let number = "\"{\\\"N\\\":\\\"9007199254740991\\\"}\"";
    server.command(&format!("HSET lease:{{job}}:attributes =n {number}"));
    kept(server.count() == "text", "an inexact number is not counted")
}
