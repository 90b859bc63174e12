//! What one server says to each request of a lock: scripts called, replies read.

use std::time::Duration;

use lease_core::{
    Attributes, Beat, Claim, FencingToken, Grant, Heartbeat, Holder, LeaseKey, Lessee, LossCause,
};
use redis::Value;

use crate::connection::Role;
use crate::error::{Fault, from_script};
use crate::key_space::Name;
use crate::node::{Node, Queue};
use crate::request::Request;
use crate::script::{self, Call, text};
use crate::value::read_attributes;

/// What a server says to a claim.
#[derive(Debug)]
pub(crate) enum Vote {
    Granted(FencingToken, Attributes, Asked),
    Held(Rival),
    /// The grant that was to be adopted is not there, nor another.
    Gone,
    /// The server has not been up for long enough to vote.
    Restarted {
        up: Duration,
    },
}

/// Whether the claim that is granted was granted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    First,
    Again,
}

/// Who holds a key on one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rival {
    pub(crate) holder: Holder,
    /// Empty where the key is only reserved.
    pub(crate) nonce: String,
}

/// What a server says to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pulse {
    Extended,
    Overtaken,
    /// The grant is not there, and nothing says why.
    Missing,
    Revoked,
    Superseded,
}

impl From<Pulse> for Heartbeat {
    fn from(pulse: Pulse) -> Self {
        match pulse {
            Pulse::Extended => Self::Extended,
            Pulse::Overtaken => Self::Overtaken,
            Pulse::Missing => Self::Lost(LossCause::Expired),
            Pulse::Revoked => Self::Lost(LossCause::Revoked),
            Pulse::Superseded => Self::Lost(LossCause::Superseded),
        }
    }
}

/// The round of votes in which a claim is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    /// From 1, and larger than that of every earlier round: what takes back an earlier round does
    /// not touch this one. 0 on one server, which holds no vote.
    pub(crate) number: u64,
    /// A node that has not been up for as long keeps from voting.
    pub(crate) least_uptime: Duration,
    /// The time of most nodes, in microseconds since 1970, as far as it is known, or 0. Where nodes
    /// count from their time, they count from this, so that they agree.
    pub(crate) proposed_time: u64,
}

impl Round {
    pub(crate) const NONE: Self =
        Self { number: 0, least_uptime: Duration::ZERO, proposed_time: 0 };
}

/// Whether a server is asked for itself, or as one of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Alone,
    OneOfSeveral,
}

impl Node {
    pub(crate) fn obtain_call(&self, claim: &Claim, round: Round) -> Call {
        let call = script::OBTAIN
            .on(self.keys_of_lock(&claim.key))
            .text(claim.nonce)
            .arg(claim.lessee.as_str())
            .number(millis(claim.ttl))
            .number(millis(self.retention))
            .number(round.number);
        if round.number == Round::NONE.number {
            return call;
        }
        call.number(round.least_uptime.as_secs()).number(round.proposed_time)
    }

    /// In a Cluster, a lock is one key: a script with two is refused while their slot moves.
    fn keys_of_lock<'a>(&'a self, key: &'a LeaseKey) -> Vec<Name<'a>> {
        match self.role() {
            Role::Cluster => vec![self.keys.lease(key)],
            Role::Standalone | Role::Sentinel => {
                vec![self.keys.lease(key), self.keys.attributes(key)]
            }
        }
    }

    pub(crate) fn adopt_call(&self, grant: &Grant, claim: &Claim, round: Round) -> Call {
        script::ADOPT
            .on(self.keys_of_lock(&grant.key))
            .text(grant.nonce)
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
        standing: Standing,
    ) -> Call {
        let key = &grant.key;
        script::RELEASE
            .on([self.keys.lease(key)])
            .text(grant.nonce)
            .number(grant.token.get())
            .arg(reserved.map_or_else(String::new, |length| millis(length).to_string()))
            .number(millis(self.retention))
            .number(u64::from(standing == Standing::OneOfSeveral))
            .arg(self.publish())
            .arg(self.keys.channel(key))
    }

    /// Sends the heartbeats of many grants in one script, or, in a Cluster, in one for each: its
    /// keys are in different slots.
    pub(crate) async fn heartbeat(&self, beats: &[(Grant, Beat)]) -> Vec<Result<Pulse, Fault>> {
        let keys = beats.iter().map(|(grant, _)| self.keys.lease(&grant.key));
        let mut call = script::HEARTBEAT.on(keys).number(millis(self.retention));
        for (grant, beat) in beats {
            call = call
                .text(grant.nonce)
                .number(beat.get())
                .number(millis(grant.ttl))
                .number(grant.token.get());
        }
        match self.call_at_once(&call).await {
            Ok(Value::Array(answers)) if answers.len() == beats.len() => {
                answers.iter().map(|answer| self.read_pulse(answer)).collect()
            }
            Ok(_) => vec![Err(self.unreadable("heartbeat")); beats.len()],
            Err(fault) => vec![Err(fault); beats.len()],
        }
    }

    pub(crate) async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<bool, Fault> {
        let call = script::RAISE
            .on([self.keys.lease(&claim.key)])
            .text(claim.nonce)
            .number(token.get())
            .number(millis(self.retention));
        self.says_yes(&call).await
    }

    /// Only on a node that has been up for `least_uptime`.
    pub(crate) async fn put_back(
        &self,
        grant: &Grant,
        beat: Beat,
        least_uptime: Duration,
    ) -> Result<bool, Fault> {
        let call = script::PUT_BACK
            .on([self.keys.lease(&grant.key)])
            .text(grant.nonce)
            .arg(grant.lessee.as_str())
            .number(grant.token.get())
            .number(beat.get())
            .number(millis(grant.ttl))
            .number(millis(self.retention))
            .number(least_uptime.as_secs());
        self.says_yes(&call).await
    }

    /// Takes back a vote that was given in `round` or before.
    pub(crate) async fn withdraw(&self, claim: &Claim, round: u64) -> Result<bool, Fault> {
        let call = script::WITHDRAW
            .on([self.keys.lease(&claim.key)])
            .text(claim.nonce)
            .number(round)
            .arg(self.publish())
            .arg(self.keys.channel(&claim.key));
        self.says_yes(&call).await
    }

    pub(crate) async fn holder(&self, key: &LeaseKey) -> Result<Option<Rival>, Fault> {
        let answer = self.call(&script::HOLDER.on([self.keys.lease(key)])).await?;
        match self.read_vote("holder", &answer)? {
            Vote::Held(rival) => Ok(Some(rival)),
            _ => Ok(None),
        }
    }

    pub(crate) async fn vote(&self, call: &Call) -> Result<Vote, Fault> {
        let asked = self.now();
        let answer = self.call(call).await?;
        if let Some(micros) = read_time(&answer) {
            self.told_time(asked, micros);
        }
        self.read_vote(call.name(), &answer)
    }

    /// Runs a script that grants on one logical server.
    pub(crate) async fn vote_alone(&self, call: &Call, key: &LeaseKey) -> Result<Vote, Fault> {
        if self.role() != Role::Cluster {
            return self.vote(call).await;
        }
        // Read after the grant, on its connection: from then on, only its holder changes them.
        let mut read = redis::cmd("HGETALL");
        read.arg(self.keys.attributes(key).to_string());
        let answers = self.ask(Request::ScriptThen(call, &read), Queue::InLine).await?;
        let Value::Array(answers) = answers else { return Err(self.unreadable(call.name())) };
        let [answer, found] = &answers[..] else { return Err(self.unreadable(call.name())) };
        let Vote::Granted(token, _, asked) = self.read_vote(call.name(), answer)? else {
            return self.read_vote(call.name(), answer);
        };
        let found = match found {
            // They may be on another node just now.
            Value::Nil | Value::ServerError(_) => &self.command(&read).await?,
            found => found,
        };
        let attributes = read_attributes(found).ok_or_else(|| self.unreadable(call.name()))?;
        Ok(Vote::Granted(token, attributes.unwrap_or_default(), asked))
    }

    pub(crate) async fn says_yes(&self, call: &Call) -> Result<bool, Fault> {
        match self.call_at_once(call).await? {
            Value::Int(0) => Ok(false),
            Value::Int(_) => Ok(true),
            _ => Err(self.unreadable(call.name())),
        }
    }

    /// Reads `{'granted' or 'again', token, attributes}`, `{'held', lessee, token, milliseconds, nonce}`,
    /// `{'restarted', seconds}` or `{'free'}`. A node of a quorum tells its time after what it grants.
    pub(crate) fn read_vote(&self, script: &str, answer: &Value) -> Result<Vote, Fault> {
        let unreadable = || self.unreadable(script);
        let Value::Array(items) = answer else { return Err(unreadable()) };
        let word = |place: usize| items.get(place).and_then(text).ok_or_else(unreadable);
        let number = |place: usize| word(place)?.parse::<u64>().map_err(|_| unreadable());
        let token = |place: usize| FencingToken::new(number(place)?).map_err(|_| unreadable());
        match word(0)?.as_str() {
            word @ ("granted" | "again") => {
                let attributes = items.get(2).ok_or_else(unreadable)?;
                let attributes = read_attributes(attributes).ok_or_else(unreadable)?;
                let asked = if word == "again" { Asked::Again } else { Asked::First };
                Ok(Vote::Granted(token(1)?, attributes.unwrap_or_default(), asked))
            }
            "held" => {
                let lessee = Lessee::new(word(1)?).map_err(|_| unreadable())?;
                // Below zero: it has just expired.
                let left = word(3)?.parse::<i64>().map_err(|_| unreadable())?;
                let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
                let holder = Holder::new(lessee, token(2)?, Some(left));
                Ok(Vote::Held(Rival { holder, nonce: word(4)? }))
            }
            "restarted" => Ok(Vote::Restarted { up: Duration::from_secs(number(1)?) }),
            "free" => Ok(Vote::Gone),
            _ => Err(unreadable()),
        }
    }

    fn read_pulse(&self, answer: &Value) -> Result<Pulse, Fault> {
        let unreadable = || self.unreadable("heartbeat");
        let why_not = match answer {
            Value::Int(1) => return Ok(Pulse::Extended),
            Value::BulkString(why_not) => &why_not[..],
            _ => return Err(unreadable()),
        };
        match why_not {
            b"overtaken" => Ok(Pulse::Overtaken),
            b"expired" => Ok(Pulse::Missing),
            b"revoked" => Ok(Pulse::Revoked),
            b"superseded" => Ok(Pulse::Superseded),
            [b'!', error @ ..] => Err(from_script(&self.name, &String::from_utf8_lossy(error))),
            _ => Err(unreadable()),
        }
    }

    /// How a script publishes: in a Cluster, to the nodes of one slot.
    pub(crate) fn publish(&self) -> &'static str {
        match self.role() {
            Role::Cluster => "SPUBLISH",
            Role::Standalone | Role::Sentinel => "PUBLISH",
        }
    }

    pub(crate) fn unreadable(&self, script: &str) -> Fault {
        Fault::corrupt(format!(
            "{}: the script {script} found something that is no lease: somebody else writes under \
             this prefix",
            self.name
        ))
    }
}

/// The time that a node of a quorum tells with what it grants.
fn read_time(answer: &Value) -> Option<u64> {
    match answer {
        Value::Array(items) => match &**items {
            [_, _, _, Value::Int(micros)] => u64::try_from(*micros).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Whole milliseconds, rounded up: a lease never ends before its ttl has passed.
pub(crate) fn millis(length: Duration) -> u64 {
    let millis = length.as_nanos().div_ceil(1_000_000);
    // Redis refuses expiries that overflow when added to the time: a million years suffice.
    u64::try_from(millis).unwrap_or(u64::MAX).clamp(1, 31_536_000_000_000_000)
}

/// As a script takes them: in turn, with their number told before.
pub(crate) fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}
