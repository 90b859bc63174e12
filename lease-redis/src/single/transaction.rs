//! One batch as one write: a script that releases keys, and a transaction that claims keys.
//!
//! ```text
//! EVALSHA release n lease … publish tokens text …
//! MULTI
//! SET lease text NX PX ttl GET          once for each claim
//! XADD tokens NOMKSTREAM MAXLEN ~ 1 * t 1
//! EXEC
//! ```
//!
//! The transaction returns no token in two cases. In the first case, the server has lost its data, so the
//! stream does not exist. In the second case, the clock is so far behind the last id that the numbers of that
//! id's millisecond are used up. Then the client releases the transaction's grants, a script continues the
//! stream with a later millisecond, and the client repeats the claims.
//!
//! All grants of a transaction have one token, because tokens must grow only for each key. The releases are a
//! separate script, because a server at its maxmemory refuses a queued SET, and then the whole transaction.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::store::{Claim, Grant, RequestNumber};
use lease_core::{FencingToken, Holder};
use redis::{Cmd, Pipeline, RedisWrite, Value};

use crate::connection::batch::{BatchWriter, Pending, fail_all};
use crate::connection::node::{Node, Permit};
use crate::connection::request::Request;
use crate::error::ServerFault;
use crate::scripts::{Call, millis, nonce_text};
use crate::single::lock_text::{ClaimedText, LockState, LockText};

#[derive(Debug)]
pub(crate) enum ClaimAnswer {
    Granted(RequestNumber, FencingToken),
    Held(Holder),
    /// The key is a record, so a script must claim it.
    Record,
}

pub(crate) struct LockWriter {
    pub(crate) node: Arc<Node>,
}

type PendingClaim = Pending<Claim, ClaimAnswer>;
type PendingRelease = Pending<Grant, bool>;

#[async_trait]
impl BatchWriter for LockWriter {
    type Claim = Claim;
    type Granted = ClaimAnswer;
    type Release = Grant;

    async fn write(&self, claims: Vec<PendingClaim>, releases: Vec<PendingRelease>) {
        let node = &*self.node;
        let release = (!releases.is_empty())
            .then(|| node.release_all_call(releases.iter().map(|release| &release.request)));
        let mut pipeline = redis::pipe();
        if let Some(call) = &release {
            pipeline.add_command(call.by_hash().clone());
        }
        if !claims.is_empty() {
            add_transaction(&mut pipeline, node, &claims);
        }
        let request = Request::Pipeline(&pipeline, Duration::ZERO);
        let fault = match node.send(request, Permit::NotRequired).await {
            Ok(Value::Array(replies)) => {
                let mut replies = replies.into_iter();
                if let Some(call) = release {
                    let reply = replies.next().unwrap_or(Value::Nil);
                    answer_releases(node, releases, &call, reply).await;
                }
                if !claims.is_empty() {
                    match read_transaction(node, replies.collect(), claims.len()) {
                        Ok(executed) if executed.token == TokenReply::UsedUp => {
                            Box::pin(self.claim_again(claims, &executed)).await;
                        }
                        Ok(executed) => answer_claims(node, claims, executed).await,
                        Err(fault) => fail_all(claims, &fault),
                    }
                }
                return;
            }
            Ok(_) => node.unreadable("batch"),
            Err(fault) => fault,
        };
        fail_all(releases, &fault);
        fail_all(claims, &fault);
    }
}

impl LockWriter {
    /// Continues the stream of tokens, and repeats the claims that got no token.
    async fn claim_again(&self, claims: Vec<PendingClaim>, executed: &Executed) {
        let node = &*self.node;
        for (Pending { request: claim, .. }, reply) in claims.iter().zip(&executed.claims) {
            if *reply == Value::Nil {
                release_unusable(node, claim).await;
            }
        }
        let mut pipeline = redis::pipe();
        add_transaction(&mut pipeline, node, &claims);
        let request = Request::Pipeline(&pipeline, Duration::ZERO);
        let again = async {
            node.take_token().await?;
            match node.send(request, Permit::NotRequired).await? {
                Value::Array(replies) => read_transaction(node, replies, claims.len()),
                _ => Err(node.unreadable("batch")),
            }
        };
        match again.await {
            Ok(executed) => answer_claims(node, claims, executed).await,
            Err(fault) => fail_all(claims, &fault),
        }
    }
}

/// The grant must not hold the key for a ttl.
async fn release_unusable(node: &Node, claim: &Claim) {
    let grant = claim.granted(FencingToken::MAX);
    drop(node.call_at_once(&node.release_call(&grant)).await);
}

fn add_transaction(pipeline: &mut Pipeline, node: &Node, claims: &[PendingClaim]) {
    pipeline.cmd("MULTI");
    for Pending { request: claim, .. } in claims {
        let lease = node.keys.lease(&claim.key);
        let mut set = Cmd::with_capacity(8, 256);
        set.arg("SET").write_arg_fmt(&lease);
        set.write_arg_fmt(ClaimedText::of_claim(claim));
        set.arg("NX").arg("PX").arg(millis(claim.ttl));
        if node.sets_and_gets() {
            set.arg("GET");
            pipeline.add_command(set);
        } else {
            pipeline.add_command(set).cmd("GET").arg(lease.to_string());
        }
    }
    let add = pipeline.cmd("XADD").arg(node.keys.tokens());
    add.arg("NOMKSTREAM").arg("MAXLEN").arg("~").arg(1).arg("*").arg("t").arg(1);
    pipeline.cmd("EXEC");
}

async fn answer_releases(node: &Node, releases: Vec<PendingRelease>, call: &Call, reply: Value) {
    let reply = match reply {
        Value::ServerError(_) => Box::pin(node.call_at_once(call)).await,
        reply => Ok(reply),
    };
    match reply.and_then(|reply| node.read_releases(&reply, releases.len())) {
        Ok(answers) => {
            for (release, answer) in releases.into_iter().zip(answers) {
                release.answer(answer);
            }
        }
        Err(fault) => fail_all(releases, &fault),
    }
}

async fn answer_claims(node: &Node, claims: Vec<PendingClaim>, executed: Executed) {
    let token = match executed.token {
        TokenReply::Token(token) => Some(token),
        TokenReply::UsedUp | TokenReply::Unreadable => None,
    };
    for (pending, reply) in claims.into_iter().zip(executed.claims) {
        let claim = &pending.request;
        let read = read_claim(node, claim, &reply, token);
        if read.is_err() && reply == Value::Nil {
            Box::pin(release_unusable(node, claim)).await;
        }
        pending.answer(read);
    }
}

struct Executed {
    claims: Vec<Value>,
    token: TokenReply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenReply {
    Token(FencingToken),
    /// A script must continue the stream.
    UsedUp,
    Unreadable,
}

impl TokenReply {
    fn read(id: &Value) -> Self {
        if *id == Value::Nil {
            return Self::UsedUp;
        }
        match read_id(id) {
            Some((_, number)) if number >= 1000 => Self::UsedUp,
            Some((millis, number)) => {
                FencingToken::new(millis * 1000 + number).map_or(Self::Unreadable, Self::Token)
            }
            None => Self::Unreadable,
        }
    }
}

fn read_transaction(
    node: &Node,
    mut replies: Vec<Value>,
    claims: usize,
) -> Result<Executed, ServerFault> {
    // If a command is refused when it is queued, its reply contains the reason, and EXEC also fails.
    let refused = replies.iter().find_map(|reply| match reply {
        Value::ServerError(error) => Some(redis::RedisError::from(error.clone())),
        _ => None,
    });
    if let Some(error) = refused {
        return Err(ServerFault::from_redis(&node.name, &error));
    }
    let Some(Value::Array(mut executed)) = replies.pop() else {
        return Err(node.unreadable("batch"));
    };
    let per_claim = if node.sets_and_gets() { 1 } else { 2 };
    if executed.len() != claims * per_claim + 1 {
        return Err(node.unreadable("batch"));
    }
    let id = executed.pop().unwrap_or(Value::Nil);
    let token = TokenReply::read(&id);
    if per_claim == 1 {
        return Ok(Executed { claims: executed, token });
    }
    let claims = executed.chunks(per_claim).map(|replies| match replies {
        [Value::Okay, _] | [] => Value::Nil,
        [.., reply] => reply.clone(),
    });
    Ok(Executed { claims: claims.collect(), token })
}

/// The reply to `SET … NX GET` is nil if the key was free, and otherwise the lock's text.
fn read_claim(
    node: &Node,
    claim: &Claim,
    reply: &Value,
    token: Option<FencingToken>,
) -> Result<ClaimAnswer, ServerFault> {
    let token = || {
        token.ok_or_else(|| {
            ServerFault::corrupt(format!(
                "{}: the key {} gave no token: another program writes keys with this prefix",
                node.name,
                node.keys.tokens()
            ))
        })
    };
    match reply {
        Value::Nil => Ok(ClaimAnswer::Granted(claim.request, token()?)),
        Value::BulkString(text) => {
            let lock = LockText::parse(text).ok_or_else(|| node.unreadable("batch"))?;
            if lock.nonce == nonce_text(claim.nonce) && lock.state == LockState::Held {
                return Ok(ClaimAnswer::Granted(lock.request, token()?));
            }
            Ok(ClaimAnswer::Held(lock.into_holder()))
        }
        Value::ServerError(error) if error.code() == "WRONGTYPE" => Ok(ClaimAnswer::Record),
        Value::ServerError(error) => {
            Err(ServerFault::from_redis(&node.name, &redis::RedisError::from(error.clone())))
        }
        _ => Err(node.unreadable("batch")),
    }
}

fn read_id(id: &Value) -> Option<(u64, u64)> {
    let Value::BulkString(id) = id else { return None };
    let (millis, number) = std::str::from_utf8(id).ok()?.split_once('-')?;
    Some((millis.parse().ok()?, number.parse().ok()?))
}
