//! The requests of a lock to one server: the calls of its scripts, and the parsing of their replies.

use std::time::Duration;

use lease_core::store::{Beat, Claim, Grant, Heartbeat};
use lease_core::{Attributes, FencingToken, Holder, LeaseKey, Lessee, LossCause};
use redis::Value;

use crate::connection::connector::Role;
use crate::connection::node::{Node, Permit};
use crate::connection::request::Request;
use crate::error::{ServerFault, from_script};
use crate::scripts::attributes::read_attributes;
use crate::scripts::key_space::KeyName;
use crate::scripts::{self, Call, millis, text};

/// A server's reply to a claim.
#[derive(Debug)]
pub(crate) enum Vote {
    Granted(FencingToken, Attributes, GrantKind),
    Held(HolderOnServer),
    /// The grant to adopt does not exist, and the key is free.
    Gone,
}

/// Whether the server has granted the same claim before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrantKind {
    New,
    Repeated,
}

impl GrantKind {
    /// The grant of `claim` under `token`. If it was granted before, the server does not tell by which
    /// request.
    pub(crate) fn grant(self, claim: &Claim, token: FencingToken) -> Grant {
        match self {
            Self::New => claim.granted(token),
            Self::Repeated => claim.granted_before(token),
        }
    }
}

/// The holder of a key on one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HolderOnServer {
    pub(crate) holder: Holder,
    /// Empty if the key is only reserved.
    pub(crate) nonce: String,
}

/// A server's reply to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeartbeatReply {
    Extended,
    Overtaken,
    /// The grant does not exist, for no known reason.
    Missing,
    Revoked,
    Superseded,
}

impl From<HeartbeatReply> for Heartbeat {
    fn from(reply: HeartbeatReply) -> Self {
        match reply {
            HeartbeatReply::Extended => Self::Extended,
            HeartbeatReply::Overtaken => Self::Overtaken,
            HeartbeatReply::Missing => Self::Lost(LossCause::Expired),
            HeartbeatReply::Revoked => Self::Lost(LossCause::Revoked),
            HeartbeatReply::Superseded => Self::Lost(LossCause::Superseded),
        }
    }
}

/// The round of votes in which a claim is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    /// At least 1, and larger than the number of every earlier round. So the withdrawal of an earlier round
    /// does not affect this one. 0 on one server, which does not vote.
    pub(crate) number: u64,
    /// The median time of the nodes, in microseconds since 1970, or 0 if it is unknown. Nodes whose counters
    /// start from a time start from this one, so that their tokens are equal.
    pub(crate) proposed_time: u64,
}

impl Round {
    pub(crate) const NONE: Self = Self { number: 0, proposed_time: 0 };
}

/// Whether a server is used alone or as a node of a quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deployment {
    Single,
    Quorum,
}

impl Node {
    pub(crate) fn obtain_call(&self, claim: &Claim, round: Round) -> Call {
        let call = scripts::OBTAIN.on(self.keys_of_lock(&claim.key));
        let call = self.obtain_arguments(call, claim).number(round.number);
        if round.number == Round::NONE.number {
            return call;
        }
        call.number(round.proposed_time).after(self.rejoin_delay())
    }

    /// The arguments of every obtain, before the number of the round.
    pub(crate) fn obtain_arguments(&self, call: Call, claim: &Claim) -> Call {
        call.text(claim.nonce)
            .arg(claim.lessee.as_str())
            .number(millis(claim.ttl))
            .number(millis(self.retention))
    }

    /// In a Cluster, a lock uses one key: a script with two keys is refused while their slot moves.
    fn keys_of_lock<'a>(&'a self, key: &'a LeaseKey) -> Vec<KeyName<'a>> {
        match self.role() {
            Role::Cluster => vec![self.keys.lease(key)],
            Role::Standalone | Role::Sentinel => {
                vec![self.keys.lease(key), self.keys.attributes(key)]
            }
        }
    }

    pub(crate) fn adopt_call(&self, grant: &Grant, claim: &Claim, round: Round) -> Call {
        let call = scripts::ADOPT.on(self.keys_of_lock(&grant.key));
        self.adopt_arguments(call, grant, claim, round)
    }

    /// The arguments of every adoption.
    pub(crate) fn adopt_arguments(
        &self,
        call: Call,
        grant: &Grant,
        claim: &Claim,
        round: Round,
    ) -> Call {
        call.text(grant.nonce)
            .text(claim.nonce)
            .arg(claim.lessee.as_str())
            .number(millis(claim.ttl))
            .number(millis(self.retention))
            .number(round.number)
            .number(grant.token.get())
    }

    pub(crate) fn release_call(
        &self,
        grant: &Grant,
        reserved: Option<Duration>,
        deployment: Deployment,
    ) -> Call {
        let key = &grant.key;
        scripts::RELEASE
            .on([self.keys.lease(key)])
            .text(grant.nonce)
            .number(grant.token.get())
            .arg(reserved.map_or_else(String::new, |length| millis(length).to_string()))
            .number(millis(self.retention))
            .number(u64::from(deployment == Deployment::Quorum))
            .arg(self.publish())
            .arg(self.keys.channel(key))
    }

    /// Sends the heartbeats of many grants in one script. In a Cluster, the caller passes one grant, since
    /// the keys' slots differ.
    pub(crate) async fn heartbeat(
        &self,
        beats: &[(Grant, Beat)],
    ) -> Vec<Result<HeartbeatReply, ServerFault>> {
        let keys = beats.iter().map(|(grant, _)| self.keys.lease(&grant.key));
        let mut call = scripts::HEARTBEAT.on(keys).number(millis(self.retention));
        for (grant, beat) in beats {
            call = call
                .text(grant.nonce)
                .number(beat.get())
                .number(millis(grant.ttl))
                .number(grant.token.get());
        }
        match self.call_at_once(&call).await {
            Ok(Value::Array(answers)) if answers.len() == beats.len() => {
                answers.iter().map(|answer| self.read_heartbeat_reply(answer)).collect()
            }
            Ok(_) => vec![Err(self.unreadable("heartbeat")); beats.len()],
            Err(fault) => vec![Err(fault); beats.len()],
        }
    }

    pub(crate) async fn raise(
        &self,
        claim: &Claim,
        token: FencingToken,
    ) -> Result<bool, ServerFault> {
        let call = scripts::RAISE
            .on([self.keys.lease(&claim.key)])
            .text(claim.nonce)
            .number(token.get())
            .number(millis(self.retention));
        self.call_bool(&call).await
    }

    /// Restores a grant that the node has forgotten, if the node's run has lasted for `min_run`.
    pub(crate) async fn restore(
        &self,
        grant: &Grant,
        beat: Beat,
        min_run: Duration,
    ) -> Result<bool, ServerFault> {
        let call = scripts::RESTORE
            .on([self.keys.lease(&grant.key)])
            .text(grant.nonce)
            .arg(grant.lessee.as_str())
            .number(grant.token.get())
            .number(beat.get())
            .number(millis(grant.ttl))
            .number(millis(self.retention))
            .after(min_run);
        self.call_bool(&call).await
    }

    /// Withdraws a vote that was given in `round` or before.
    pub(crate) async fn withdraw(&self, claim: &Claim, round: u64) -> Result<bool, ServerFault> {
        let call = scripts::WITHDRAW
            .on([self.keys.lease(&claim.key)])
            .text(claim.nonce)
            .number(round)
            .arg(self.publish())
            .arg(self.keys.channel(&claim.key));
        self.call_bool(&call).await
    }

    pub(crate) async fn holder(
        &self,
        key: &LeaseKey,
    ) -> Result<Option<HolderOnServer>, ServerFault> {
        let answer = self.call(&scripts::HOLDER.on([self.keys.lease(key)])).await?;
        match self.read_vote("holder", &answer)? {
            Vote::Held(rival) => Ok(Some(rival)),
            _ => Ok(None),
        }
    }

    pub(crate) async fn vote(&self, call: &Call) -> Result<Vote, ServerFault> {
        let sent = self.now();
        let answer = self.call(call).await?;
        if let Some(micros) = read_time(&answer) {
            self.record_time(sent, micros);
        }
        self.read_vote(call.name(), &answer)
    }

    /// Runs a script that grants a key on one logical server.
    pub(crate) async fn vote_single(
        &self,
        call: &Call,
        key: &LeaseKey,
    ) -> Result<Vote, ServerFault> {
        if self.role() != Role::Cluster {
            return self.vote(call).await;
        }
        // The attributes are read after the grant: from then on, only the holder changes them.
        let mut read = redis::cmd("HGETALL");
        read.arg(self.keys.attributes(key).to_string());
        let answers = self.send(Request::ScriptThen(call, &read), Permit::Required).await?;
        let Value::Array(answers) = answers else { return Err(self.unreadable(call.name())) };
        let [answer, found] = &answers[..] else { return Err(self.unreadable(call.name())) };
        let Vote::Granted(token, _, kind) = self.read_vote(call.name(), answer)? else {
            return self.read_vote(call.name(), answer);
        };
        let found = match found {
            // While the slot moves, the attributes may be on another node.
            Value::Nil | Value::ServerError(_) => &self.command(&read).await?,
            found => found,
        };
        let attributes = read_attributes(found).ok_or_else(|| self.unreadable(call.name()))?;
        Ok(Vote::Granted(token, attributes.unwrap_or_default(), kind))
    }

    pub(crate) async fn call_bool(&self, call: &Call) -> Result<bool, ServerFault> {
        match self.call_at_once(call).await? {
            Value::Int(0) => Ok(false),
            Value::Int(_) => Ok(true),
            _ => Err(self.unreadable(call.name())),
        }
    }

    /// Parses `{'granted' or 'again', token, attributes}`, `{'held', lessee, token, milliseconds, nonce}`
    /// or `{'free'}`. A quorum's node appends its time to a grant.
    pub(crate) fn read_vote(&self, script: &str, answer: &Value) -> Result<Vote, ServerFault> {
        let unreadable = || self.unreadable(script);
        let Value::Array(items) = answer else { return Err(unreadable()) };
        let word = |index: usize| items.get(index).and_then(text).ok_or_else(unreadable);
        let number = |index: usize| word(index)?.parse::<u64>().map_err(|_| unreadable());
        let token = |index: usize| FencingToken::new(number(index)?).map_err(|_| unreadable());
        match word(0)?.as_str() {
            word @ ("granted" | "again") => {
                let attributes = items.get(2).ok_or_else(unreadable)?;
                let attributes = read_attributes(attributes).ok_or_else(unreadable)?;
                let kind = if word == "again" { GrantKind::Repeated } else { GrantKind::New };
                Ok(Vote::Granted(token(1)?, attributes.unwrap_or_default(), kind))
            }
            "held" => {
                let lessee = Lessee::new(word(1)?).map_err(|_| unreadable())?;
                // Negative if the holder has just expired.
                let left = word(3)?.parse::<i64>().map_err(|_| unreadable())?;
                let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
                let holder = Holder::new(lessee, Some(left)).named_by(token(2)?);
                Ok(Vote::Held(HolderOnServer { holder, nonce: word(4)? }))
            }
            "free" => Ok(Vote::Gone),
            _ => Err(unreadable()),
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

    /// The command by which a script publishes: in a Cluster, to the nodes of one shard.
    pub(crate) fn publish(&self) -> &'static str {
        match self.role() {
            Role::Cluster => "SPUBLISH",
            Role::Standalone | Role::Sentinel => "PUBLISH",
        }
    }

    pub(crate) fn unreadable(&self, script: &str) -> ServerFault {
        ServerFault::corrupt(format!(
            "{}: the script {script} found data that is no lease: another program writes keys with \
             this prefix",
            self.name
        ))
    }
}

/// The time that a quorum's node returns with a grant.
fn read_time(answer: &Value) -> Option<u64> {
    match answer {
        Value::Array(items) => match &**items {
            [_, _, _, Value::Int(micros)] => u64::try_from(*micros).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// The holder to report if the grant to adopt is gone and the key is free.
pub(crate) fn expired_holder(grant: &Grant) -> Holder {
    grant.holder(Some(Duration::ZERO))
}

/// The resolution of expiries in Redis.
pub(crate) const GRAIN: Duration = Duration::from_millis(1);

/// The number of heartbeats in one script: few enough that the script blocks the server for less than a
/// millisecond.
pub(crate) const BATCH: usize = 64;

/// The maximum number of batches that a locker sends at the same time.
pub(crate) const BATCHES_AT_ONCE: usize = 64;
