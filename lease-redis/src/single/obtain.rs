//! Grants a key on one logical server. If the claim sets attributes, the same script writes the record.

use lease_core::store::{Claim, Grant};
use lease_core::{StoreError, StoreErrorKind};

use crate::connection::connector::Role;
use crate::connection::node::Node;
use crate::error::ServerFault;
use crate::lock_requests::{Deployment, Round, Vote};
use crate::scripts::{self, Call, text};
use crate::single::RedisStore;
use crate::single::table::{Listed, written};

/// A claim on one logical server, with its attributes as text.
pub(crate) struct ClaimRequest<'a> {
    pub(crate) claim: &'a Claim,
    /// The grant to adopt, if the claim adopts one.
    adopts: Option<&'a Grant>,
    attributes: Vec<(&'a str, String)>,
}

impl<'a> ClaimRequest<'a> {
    /// # Errors
    ///
    /// If an attribute cannot be written.
    pub(crate) fn new(claim: &'a Claim, adopts: Option<&'a Grant>) -> Result<Self, StoreError> {
        let attributes = claim.attributes.iter();
        let written = attributes.map(|(name, value)| Ok((name.as_str(), written(name, value)?)));
        let attributes = written.collect::<Result<_, StoreError>>()?;
        Ok(Self { claim, adopts, attributes })
    }

    /// Whether the index needs requests of its own. In a Cluster, it may be on another node than the
    /// record, so no script can access both.
    fn is_listed_apart(&self, node: &Node) -> bool {
        !self.attributes.is_empty() && node.role() == Role::Cluster
    }

    pub(crate) fn call(&self, node: &Node, listed: Listed) -> Call {
        if self.attributes.is_empty() {
            return match self.adopts {
                None => node.obtain_call(self.claim, Round::NONE),
                Some(grant) => node.adopt_call(grant, self.claim, Round::NONE),
            };
        }
        let key = &self.claim.key;
        let mut keys =
            vec![node.keys.lease(key).to_string(), node.keys.attributes(key).to_string()];
        let is_apart = self.is_listed_apart(node);
        if !is_apart {
            keys.push(node.keys.index());
        }
        let call = match self.adopts {
            None => {
                let call = node.obtain_arguments(scripts::OBTAIN.on(keys), self.claim);
                call.number(Round::NONE.number).number(Round::NONE.proposed_time)
            }
            Some(grant) => {
                node.adopt_arguments(scripts::ADOPT.on(keys), grant, self.claim, Round::NONE)
            }
        };
        let has_to_be_listed = is_apart && listed == Listed::NotYet;
        let call = call.arg(if has_to_be_listed { "" } else { key.as_str() });
        self.attributes.iter().fold(call, |call, (name, value)| call.arg(*name).arg(value))
    }
}

impl RedisStore {
    /// Runs a script that grants a key, and waits for the configured number of replicas.
    pub(crate) async fn vote(&self, request: &ClaimRequest<'_>) -> Result<Vote, ServerFault> {
        let claim = request.claim;
        self.node.check(claim.ttl)?;
        if self.replicas == 0 {
            let vote = self.vote_without_replicas(request).await;
            if vote.as_ref().is_err_and(|fault| fault.kind == StoreErrorKind::Corrupt) {
                // The caller cannot use an unreadable grant, so the grant must not hold the key for a ttl.
                drop(self.node.withdraw(claim, Round::NONE.number).await);
            }
            return vote;
        }
        let call = request.call(&self.node, Listed::NotYet);
        let (answer, copies) = self.node.call_and_wait(&call, self.replicas).await?;
        let vote = self.node.read_vote(call.name(), &answer)?;
        if let Vote::Granted(token, ..) = vote
            && copies < self.replicas
        {
            let name = &self.node.name;
            // The caller gets an error, so the key is released. If that fails, it expires.
            let release = self.node.release_call(&claim.granted(token), None, Deployment::Single);
            drop(self.node.call(&release).await);
            return Err(ServerFault::unavailable(format!(
                "{name}: {copies} replicas have the grant, not {}",
                self.replicas
            )));
        }
        Ok(vote)
    }

    /// Runs a script that grants a key.
    async fn vote_without_replicas(&self, request: &ClaimRequest<'_>) -> Result<Vote, ServerFault> {
        let (node, key) = (&self.node, &request.claim.key);
        let call = request.call(node, Listed::NotYet);
        if !request.is_listed_apart(node) {
            return node.vote_single(&call, key).await;
        }
        let answer = node.call(&call).await?;
        if text(&answer).as_deref() != Some("unlisted") {
            return node.read_vote(call.name(), &answer);
        }
        // Adds the name before the script creates the record, so that the index has every record. Adds it
        // again afterwards: a concurrent `list` may have found no record and removed the name.
        self.put_on_list(key).await?;
        let vote = node.vote(&request.call(node, Listed::Already)).await?;
        self.put_on_list(key).await?;
        Ok(vote)
    }
}
