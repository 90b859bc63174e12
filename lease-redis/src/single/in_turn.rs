//! Waiting in turn on one logical server: the requests of queued claims, and the notices of their grants.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream;
use lease_core::store::{Claim, Enqueued, InTurn, Notices, Place};
use lease_core::{LeaseKey, StoreError, StoreErrorKind};
use redis::Value;

use crate::connection::node::Node;
use crate::connection::watches::grants::{LateGrant, LateGrants};
use crate::error::ServerFault;
use crate::scripts::{self, Call, millis, nonce_text, text};
use crate::single::RedisStore;
use crate::single::requests::ClaimReply;

#[async_trait]
impl InTurn for RedisStore {
    async fn listen(&self, claim: &Claim) -> Result<Notices, StoreError> {
        if let Some(late) = self.node.grants().take_late() {
            tokio::spawn(leave_late(Arc::downgrade(&self.node), late));
        }
        // An interruption before the subscription is confirmed also causes a notice.
        let listening = self.node.grants().listen(claim);
        self.node.subscribe_to_grants().await?;
        Ok(Notices::new(stream::unfold(listening, async |mut listening| {
            let notice = listening.next().await?;
            Some((notice, listening))
        })))
    }

    async fn enqueue(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        Ok(self.node.place(claim, Joining::Allowed).await?)
    }

    async fn renew(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        Ok(self.node.place(claim, Joining::Refused).await?)
    }

    async fn leave(&self, claim: &Claim) -> Result<(), StoreError> {
        // A grant may arrive at any time after the request.
        self.node.grants().note_left(claim);
        let call = self.node.leave_call(&claim.key, &nonce_text(claim.nonce));
        Ok(self.node.call_bool(&call).await.map(drop)?)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joining {
    Allowed,
    Refused,
}

/// A late request of a claim that has left may have joined the queue again.
async fn leave_late(node: Weak<Node>, mut late: LateGrants) {
    while let Some(LateGrant { nonce, lease }) = late.recv().await {
        let Some(node) = node.upgrade() else { return };
        let Some(key) = node.keys.key_of(&lease) else { continue };
        let call = node.leave_call(&key, &nonce);
        drop(node.call_bool(&call).await);
    }
}

impl Node {
    fn leave_call(&self, key: &LeaseKey, nonce: &str) -> Call {
        let keys = [
            self.keys.lease(key).to_string(),
            self.keys.queue(key).to_string(),
            self.keys.waiters(key).to_string(),
            self.keys.tokens(),
        ];
        scripts::LEAVE.on(keys).arg(nonce).arg(self.keys.channel(key))
    }

    async fn place(&self, claim: &Claim, joining: Joining) -> Result<Enqueued, ServerFault> {
        self.check(claim.ttl)?;
        if !claim.attributes.is_empty() {
            // A claim with attributes makes a record, which has no queue.
            return Ok(Enqueued::NoQueue);
        }
        let key = &claim.key;
        let keys = [
            self.keys.lease(key).to_string(),
            self.keys.queue(key).to_string(),
            self.keys.waiters(key).to_string(),
            self.keys.attributes(key).to_string(),
            self.keys.tokens(),
        ];
        let call = scripts::ENQUEUE
            .on(keys)
            .arg(nonce_text(claim.nonce))
            .number(claim.request.get())
            .arg(claim.lessee.as_str())
            .number(millis(claim.ttl))
            .arg(self.grants().channel())
            .number(u64::from(joining == Joining::Allowed));
        match self.call(&call).await {
            Ok(answer) => self.read_place(claim, &answer),
            // A Redis user that was created for an earlier version has no rights to queues.
            Err(fault) if fault.kind == StoreErrorKind::Denied => Ok(Enqueued::NoQueue),
            Err(fault) => Err(fault),
        }
    }

    fn read_place(&self, claim: &Claim, answer: &Value) -> Result<Enqueued, ServerFault> {
        let unreadable = || self.unreadable("enqueue");
        let items = match answer {
            Value::Array(items) => items,
            word => {
                return match text(word).as_deref() {
                    Some("gone") => Ok(Enqueued::Gone),
                    Some("race") => Ok(Enqueued::NoQueue),
                    _ => Err(unreadable()),
                };
            }
        };
        if let [word, ahead, left, receivers] = &items[..]
            && text(word).as_deref() == Some("queued")
        {
            // The server skips a waiter without a subscription. Commands may have moved to a promoted server.
            if *receivers == Value::Int(0) && self.grants().has_listeners() {
                self.watches.reconnect();
            }
            let ahead = text(ahead).and_then(|ahead| ahead.parse().ok());
            let left =
                text(left).and_then(|left| left.parse::<i64>().ok()).ok_or_else(unreadable)?;
            let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
            return Ok(Enqueued::Queued(Place::new(ahead, Some(left))));
        }
        match self.read_claim("enqueue", answer)? {
            ClaimReply::Granted(request, token, attributes) => {
                Ok(Enqueued::Granted(claim.granted_to(request, token), attributes))
            }
            _ => Err(unreadable()),
        }
    }
}
