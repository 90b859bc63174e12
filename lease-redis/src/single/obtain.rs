//! Grants a key on one logical server: a lock with the next batch, and a record by a script.

use std::sync::Arc;

use lease_core::store::{Claim, Grant, Vacancy};
use lease_core::{StoreError, StoreErrorKind};

use crate::connection::connector::Role;
use crate::connection::node::Node;
use crate::error::ServerFault;
use crate::scripts::{Call, text};
use crate::single::RedisStore;
use crate::single::requests::ClaimReply;
use crate::single::table::{Listed, written};
use crate::single::transaction::ClaimAnswer;

pub(crate) struct ClaimRequest<'a> {
    pub(crate) claim: &'a Claim,
    kind: ClaimKind<'a>,
    attributes: Vec<(&'a str, String)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum ClaimKind<'a> {
    FreeKey,
    HandedOver(&'a Grant),
    Seen(&'a Vacancy),
}

impl<'a> ClaimRequest<'a> {
    pub(crate) fn new(claim: &'a Claim, kind: ClaimKind<'a>) -> Result<Self, StoreError> {
        let attributes = claim.attributes.iter();
        let written = attributes.map(|(name, value)| Ok((name.as_str(), written(name, value)?)));
        let attributes = written.collect::<Result<_, StoreError>>()?;
        Ok(Self { claim, kind, attributes })
    }

    /// In a Cluster, no script can access both the record and the index, because they may be on different
    /// nodes.
    fn is_listed_apart(&self, node: &Node) -> bool {
        !self.attributes.is_empty() && node.role() == Role::Cluster
    }

    fn call(&self, node: &Node, listed: Listed) -> Call {
        let key = &self.claim.key;
        let keys = node.keys_of_claim(key, !self.attributes.is_empty());
        let call = match self.kind {
            ClaimKind::FreeKey => node.obtain_call(keys, self.claim),
            ClaimKind::HandedOver(grant) => node.adopt_call(keys, grant, self.claim),
            ClaimKind::Seen(vacancy) => node.obtain_under_call(keys, self.claim, vacancy),
        };
        if self.attributes.is_empty() {
            return call;
        }
        let has_to_be_listed = self.is_listed_apart(node) && listed == Listed::NotYet;
        let call = call.arg(if has_to_be_listed { "" } else { key.as_str() });
        self.attributes.iter().fold(call, |call, (name, value)| call.arg(*name).arg(value))
    }
}

impl RedisStore {
    pub(crate) async fn claim(
        &self,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimReply, ServerFault> {
        let claim = request.claim;
        self.node.check(claim.ttl)?;
        if self.replicas > 0 {
            return Box::pin(self.claim_with_replicas(request)).await;
        }
        if let Some(reply) = self.claim_of_lock(request).await? {
            return Ok(reply);
        }
        let marks =
            !matches!(request.kind, ClaimKind::HandedOver(_)) && self.node.is_awaited(&claim.key);
        // Boxed, like every rare path, so that the state of the usual path stays small.
        let reply = Box::pin(self.claim_by_script(request)).await;
        if marks && matches!(reply, Ok(ClaimReply::Held(_))) {
            self.node.note_mark(&self.node.keys.channel(&claim.key));
        }
        if reply.as_ref().is_err_and(|fault| fault.kind == StoreErrorKind::Corrupt) {
            // The caller cannot use an unreadable grant, so the grant must not hold the key for a ttl.
            drop(Box::pin(self.released_claim(claim)).await);
        }
        reply
    }

    /// Returns `None` if a script must claim the key. A script claims a record, an adopted grant, a key that
    /// was seen, and a key for which this client waits.
    async fn claim_of_lock(
        &self,
        request: &ClaimRequest<'_>,
    ) -> Result<Option<ClaimReply>, ServerFault> {
        let (node, claim) = (&self.node, request.claim);
        let by_script = !matches!(request.kind, ClaimKind::FreeKey)
            || !request.attributes.is_empty()
            || !node.has_locks()
            || node.is_awaited(&claim.key);
        if by_script {
            return Ok(None);
        }
        let _permit = node.permit().await;
        Ok(match self.batches.claim(claim.clone()).await? {
            ClaimAnswer::Granted(request, token) => {
                Some(ClaimReply::Granted(Some(request), token, lease_core::Attributes::new()))
            }
            ClaimAnswer::Held(holder) => Some(ClaimReply::Held(holder)),
            ClaimAnswer::Record => None,
        })
    }

    async fn claim_with_replicas(
        &self,
        request: &ClaimRequest<'_>,
    ) -> Result<ClaimReply, ServerFault> {
        let call = request.call(&self.node, Listed::NotYet);
        let (answer, copies) = self.node.call_and_wait(&call, self.replicas).await?;
        let reply = self.node.read_claim(call.name(), &answer)?;
        if let ClaimReply::Granted(..) = reply
            && copies < self.replicas
        {
            // The caller gets an error, so the key is released.
            drop(self.released_claim(request.claim).await);
            return Err(ServerFault::unavailable(format!(
                "{}: {copies} replicas have the grant, not {}",
                self.node.name, self.replicas
            )));
        }
        Ok(reply)
    }

    async fn claim_by_script(&self, request: &ClaimRequest<'_>) -> Result<ClaimReply, ServerFault> {
        let (node, key) = (&self.node, &request.claim.key);
        let call = request.call(node, Listed::NotYet);
        if !request.is_listed_apart(node) {
            return node.claim(&call, key).await;
        }
        let answer = node.call(&call).await?;
        if text(&answer).as_deref() != Some("unlisted") {
            return node.read_claim(call.name(), &answer);
        }
        // The first addition gives the index every record. A concurrent `list` may have found no record and
        // removed the name, so the second addition repeats it.
        self.put_on_list(key).await?;
        let call = request.call(node, Listed::Already);
        let reply = node.read_claim(call.name(), &node.call(&call).await?)?;
        self.put_on_list(key).await?;
        Ok(reply)
    }

    async fn released_claim(&self, claim: &Claim) -> Result<(), ServerFault> {
        self.released(&claim.granted(lease_core::FencingToken::MAX)).await
    }

    pub(crate) async fn released(&self, grant: &Grant) -> Result<(), ServerFault> {
        let node = Arc::clone(&self.node);
        let reply = node.call_at_once(&node.release_call(grant)).await?;
        node.read_releases(&reply, 1)?.into_iter().try_for_each(|answer| answer.map(drop))
    }
}
