//! The requests to one node that are sent without a batch, and the parsing of all replies.

use std::time::Duration;

use lease_core::store::{Beat, Grant, Moment};
use lease_core::{FencingToken, GrantId, LeaseKey};
use redis::Value;

use crate::connection::node::Node;
use crate::error::{ServerFault, from_script};
use crate::quorum::nodes::lock_text::{HolderOnNode, beginning_of, digits};
use crate::quorum::scripts;
use crate::quorum::voting::ballot::Vote;
use crate::quorum::voting::election::Proposal;
use crate::scripts::{Call, millis};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeartbeatReply {
    Extended,
    Overtaken,
    /// The node does not have the grant, and does not know the reason.
    Missing,
    Revoked,
    Superseded,
}

/// Whether the node extends a grant again that already has this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    Yes,
    No,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Query {
    OfReader,
    /// A client that waits for the key. The query marks the lock.
    OfWaiter,
}

impl Node {
    pub(crate) async fn adopt(
        &self,
        grant: &Grant,
        proposal: &Proposal,
    ) -> Result<Vote, ServerFault> {
        let call = scripts::ADOPT
            .on([&proposal.key])
            .number(millis(self.retention))
            .text(grant.nonce.get().simple())
            .arg(above(grant.token))
            .arg(proposal.text.as_str())
            .number(millis(proposal.claim.ttl))
            .after(self.rejoin_delay());
        let sent = self.now();
        let answer = self.call_at_once(&call).await?;
        self.read_vote("adopt", &answer, sent)
    }

    /// A node that does not vote only releases the grant, and fails.
    pub(crate) async fn reserve(
        &self,
        grant: &Grant,
        length: Duration,
    ) -> Result<bool, ServerFault> {
        let (delay, key) = (self.rejoin_delay(), self.keys.lease(&grant.key));
        let call = scripts::RESERVE
            .on([&key])
            .number(millis(self.retention.max(length)))
            .text(grant.nonce.get().simple())
            .arg(above(grant.token))
            .arg(digits(grant.token.get()))
            .arg(grant.lessee.as_str())
            .number(millis(length))
            .after(delay);
        let reserved = self.call_bool(&call).await;
        if reserved.is_err() && !self.has_run_for(delay) {
            let release = scripts::RELEASE
                .on([&key])
                .number(millis(self.retention))
                .arg(beginning_of(grant.nonce, grant.token))
                .arg(above(grant.token));
            self.call_at_once(&release).await?;
        }
        reserved
    }

    pub(crate) async fn extend(
        &self,
        beats: &[(Grant, Beat)],
        repeat: Repeat,
    ) -> Vec<Result<HeartbeatReply, ServerFault>> {
        let keys = beats.iter().map(|(grant, _)| self.keys.lease(&grant.key));
        let mut call = scripts::HEARTBEAT.on(keys).number(millis(self.retention));
        for (grant, beat) in beats {
            call = call
                .text(grant.nonce.get().simple())
                .number(beat.get())
                .number(millis(grant.ttl))
                .arg(digits(grant.token.get()));
        }
        if repeat == Repeat::Yes {
            call = call.arg("again");
        }
        match self.call_at_once(&call).await {
            Ok(Value::Array(answers)) if answers.len() == beats.len() => {
                answers.iter().map(|answer| self.read_heartbeat_reply(answer)).collect()
            }
            Ok(_) => vec![Err(self.unreadable("heartbeat")); beats.len()],
            Err(fault) => vec![Err(fault); beats.len()],
        }
    }

    pub(crate) async fn restore(
        &self,
        grant: &Grant,
        beat: Beat,
        min_run: Duration,
    ) -> Result<bool, ServerFault> {
        let call = scripts::RESTORE
            .on([self.keys.lease(&grant.key)])
            .number(millis(self.retention))
            .text(grant.nonce.get().simple())
            .arg(digits(grant.token.get()))
            .number(beat.get())
            .arg(grant.lessee.as_str())
            .number(millis(grant.ttl))
            .after(min_run);
        self.call_bool(&call).await
    }

    pub(crate) fn withdraw_call(&self, proposal: &Proposal) -> Call {
        scripts::WITHDRAW
            .on([&proposal.key])
            .number(millis(self.retention))
            .text(proposal.claim.nonce.get().simple())
            .arg(digits(proposal.token.get()))
            .arg(above(proposal.token))
    }

    pub(crate) fn evict_call(&self, key: &LeaseKey, grant: &GrantId) -> Call {
        scripts::EVICT.on([self.keys.lease(key)]).arg(grant.as_str())
    }

    /// Returns whether the key is held on this node.
    pub(crate) async fn mark_lock(&self, key: &LeaseKey) -> Result<bool, ServerFault> {
        self.call_bool(&scripts::MARK.on([self.keys.lease(key)])).await
    }

    pub(crate) async fn holders_here(
        &self,
        keys: &[LeaseKey],
        query: Query,
    ) -> Result<Vec<Result<Vote, ServerFault>>, ServerFault> {
        let call = scripts::HOLDER.on(keys.iter().map(|key| self.keys.lease(key)));
        let call = call.number(u64::from(query == Query::OfWaiter));
        let sent = self.now();
        match self.call(&call).await? {
            Value::Array(answers) if answers.len() == keys.len() => {
                Ok(answers.iter().map(|answer| self.read_vote("holder", answer, sent)).collect())
            }
            _ => Err(self.unreadable("holder")),
        }
    }

    pub(crate) async fn holder_here(
        &self,
        key: &LeaseKey,
        query: Query,
    ) -> Result<Vote, ServerFault> {
        let holders = self.holders_here(std::slice::from_ref(key), query).await?;
        holders.into_iter().next().unwrap_or_else(|| Err(self.unreadable("holder")))
    }

    /// `claim_usual.lua` describes the answers.
    pub(crate) fn read_vote(
        &self,
        script: &str,
        answer: &Value,
        sent: Moment,
    ) -> Result<Vote, ServerFault> {
        let unreadable = || self.unreadable(script);
        let number = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).ok();
            digits.and_then(|digits| digits.parse::<u64>().ok()).ok_or_else(unreadable)
        };
        match answer {
            Value::Int(0) => Ok(Vote::Accepted),
            Value::Int(micros) => {
                self.record_time(sent, u64::try_from(*micros).map_err(|_| unreadable())?);
                Ok(Vote::Accepted)
            }
            Value::Nil => Ok(Vote::Free),
            Value::Array(parts) => match &parts[..] {
                [Value::BulkString(text), left] => {
                    // Negative if the holder has just expired.
                    let left = match left {
                        Value::Int(millis) => u64::try_from(*millis).unwrap_or(0),
                        _ => return Err(unreadable()),
                    };
                    let holder = HolderOnNode::parse(text, Duration::from_millis(left));
                    holder.map(Vote::Held).ok_or_else(unreadable)
                }
                _ => Err(unreadable()),
            },
            Value::BulkString(word) => match &word[..] {
                b"free" => Ok(Vote::Free),
                [b'<', counter @ ..] => Ok(Vote::Outbid(number(counter)?)),
                [b'@', micros @ ..] => {
                    let micros = number(micros)?;
                    self.record_time(sent, micros);
                    // The next proposal reaches the node later, by about the time that this answer took.
                    let took = u64::try_from(self.now().since(sent).as_micros()).unwrap_or(0);
                    Ok(Vote::Outbid(micros.saturating_add(took)))
                }
                [b'!', error @ ..] => Err(from_script(&self.name, &String::from_utf8_lossy(error))),
                _ => Err(unreadable()),
            },
            _ => Err(unreadable()),
        }
    }

    pub(crate) fn read_bool(&self, script: &str, answer: &Value) -> Result<bool, ServerFault> {
        match answer {
            Value::Int(0) => Ok(false),
            Value::Int(_) => Ok(true),
            Value::BulkString(error) => match &error[..] {
                [b'!', error @ ..] => Err(from_script(&self.name, &String::from_utf8_lossy(error))),
                _ => Err(self.unreadable(script)),
            },
            _ => Err(self.unreadable(script)),
        }
    }

    fn read_heartbeat_reply(&self, answer: &Value) -> Result<HeartbeatReply, ServerFault> {
        let unreadable = || self.unreadable("heartbeat");
        let reason = match answer {
            Value::Int(1) => return Ok(HeartbeatReply::Extended),
            Value::BulkString(reason) => &reason[..],
            _ => return Err(unreadable()),
        };
        match reason {
            b"overtaken" => Ok(HeartbeatReply::Overtaken),
            b"expired" => Ok(HeartbeatReply::Missing),
            b"revoked" => Ok(HeartbeatReply::Revoked),
            b"superseded" => Ok(HeartbeatReply::Superseded),
            [b'!', error @ ..] => Err(from_script(&self.name, &String::from_utf8_lossy(error))),
            _ => Err(unreadable()),
        }
    }
}

/// Returns the token plus 1. Scripts compare tokens with this number, and a release raises counters to it.
pub(crate) fn above(token: FencingToken) -> String {
    digits(token.get() + 1)
}
