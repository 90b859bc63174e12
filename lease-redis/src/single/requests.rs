//! The scripts of one logical server: their calls, and the parsing of their replies.

use std::time::Duration;

use lease_core::store::{Beat, Claim, Grant, Heartbeat, Parent, RequestNumber};
use lease_core::{Attributes, FencingToken, GrantId, Holder, LeaseKey, Lessee, LossCause};
use redis::Value;

use crate::connection::connector::Role;
use crate::connection::node::{Node, Permit};
use crate::connection::request::Request;
use crate::error::{ServerFault, from_script};
use crate::scripts::attributes::read_attributes;
use crate::scripts::{self, Call, millis, nonce_text, text};
use crate::single::lock_text::{ClaimedText, token};

#[derive(Debug)]
pub(crate) enum ClaimReply {
    /// `None` if the server does not know the number of the granted request.
    Granted(Option<RequestNumber>, FencingToken, Attributes),
    Held(Holder),
    /// The grant to adopt does not exist, and the key is free.
    Gone,
}

impl Node {
    /// A Cluster refuses scripts with two keys while the keys' slot moves. So a grant of a free key makes a
    /// record there.
    pub(crate) fn has_locks(&self) -> bool {
        self.role() != Role::Cluster
    }

    fn locks(&self) -> u64 {
        u64::from(self.has_locks())
    }

    /// In a Cluster, only a claim with attributes has their key.
    pub(crate) fn keys_of_claim(&self, key: &LeaseKey, sets_attributes: bool) -> Vec<String> {
        let mut keys = vec![self.keys.lease(key).to_string()];
        if sets_attributes || self.has_locks() {
            keys.push(self.keys.attributes(key).to_string());
        }
        if self.has_locks() {
            keys.push(self.keys.tokens());
            if sets_attributes {
                keys.push(self.keys.index());
            }
        }
        keys
    }

    pub(crate) fn obtain_call(&self, keys: Vec<String>, claim: &Claim) -> Call {
        let waits = self.is_awaited(&claim.key);
        scripts::OBTAIN
            .on(keys)
            .arg(nonce_text(claim.nonce))
            .number(claim.request.get())
            .arg(claim.lessee.as_str())
            .number(millis(claim.ttl))
            .number(millis(self.retention))
            .number(u64::from(waits))
    }

    pub(crate) fn adopt_call(&self, keys: Vec<String>, grant: &Grant, claim: &Claim) -> Call {
        named(scripts::ADOPT.on(keys), grant)
            .arg(nonce_text(claim.nonce))
            .number(claim.request.get())
            .arg(claim.lessee.as_str())
            .number(millis(claim.ttl))
            .number(millis(self.retention))
            .session(claim.parent.as_ref())
    }

    /// The call also releases a late request of the same claim.
    pub(crate) fn release_call(&self, grant: &Grant) -> Call {
        self.release_all_call([grant].into_iter())
    }

    pub(crate) fn release_all_call<'a, I>(&self, grants: I) -> Call
    where
        I: ExactSizeIterator<Item = &'a Grant> + Clone,
    {
        let leases = grants.clone().map(|grant| self.keys.lease(&grant.key));
        let call = scripts::RELEASE.on(leases).arg(self.publish()).arg(self.keys.tokens());
        grants.fold(call, |call, grant| call.text(ClaimedText::of_grant(grant)))
    }

    pub(crate) fn reserve_call(&self, grant: &Grant, reserved: Duration) -> Call {
        named(scripts::RESERVE.on([self.keys.lease(&grant.key)]), grant)
            .number(millis(reserved))
            .number(millis(self.retention))
            .arg(self.publish())
            .arg(self.keys.channel(&grant.key))
    }

    pub(crate) fn under(&self, call: Call, grant: &Grant) -> Call {
        named(call, grant).number(self.locks())
    }

    pub(crate) fn with_locks(&self, call: Call) -> Call {
        call.number(self.locks())
    }

    /// In a Cluster, the caller passes one grant, because the keys' slots differ.
    pub(crate) async fn heartbeat(
        &self,
        beats: &[(Grant, Beat)],
    ) -> Vec<Result<Heartbeat, ServerFault>> {
        let keys = beats.iter().map(|(grant, _)| self.keys.lease(&grant.key));
        let call = scripts::HEARTBEAT.on(keys).number(millis(self.retention));
        let call = beats.iter().fold(self.with_locks(call), |call, (grant, beat)| {
            call.arg(nonce_text(grant.nonce))
                .number(request_of(grant))
                .number(beat.get())
                .number(millis(grant.ttl))
                .number(grant.token.get())
        });
        match self.call_at_once(&call).await {
            Ok(Value::Array(answers)) if answers.len() == beats.len() => {
                answers.iter().map(|answer| self.read_heartbeat(answer)).collect()
            }
            Ok(_) => vec![Err(self.unreadable("heartbeat")); beats.len()],
            Err(fault) => vec![Err(fault); beats.len()],
        }
    }

    /// In a Cluster, the caller passes one key.
    pub(crate) async fn holders(
        &self,
        keys: &[LeaseKey],
    ) -> Result<Vec<Option<Holder>>, ServerFault> {
        let call = scripts::HOLDER.on(keys.iter().map(|key| self.keys.lease(key)));
        let Value::Array(answers) = self.call(&call).await? else {
            return Err(self.unreadable("holder"));
        };
        let holder = |answer| match self.read_claim("holder", answer)? {
            ClaimReply::Held(holder) => Ok(Some(holder)),
            _ => Ok(None),
        };
        answers.iter().map(holder).collect()
    }

    /// Returns whether the key is held.
    pub(crate) async fn mark(&self, key: &LeaseKey) -> Result<bool, ServerFault> {
        self.call_bool(&self.with_locks(scripts::MARK.on([self.keys.lease(key)]))).await
    }

    pub(crate) async fn take_token(&self) -> Result<FencingToken, ServerFault> {
        let answer = self.call_at_once(&scripts::TAKE_TOKEN.on([self.keys.tokens()])).await?;
        let token = text(&answer).and_then(|text| token(&text).ok()?);
        token.ok_or_else(|| self.unreadable("take_token"))
    }

    pub(crate) async fn claim(
        &self,
        call: &Call,
        key: &LeaseKey,
    ) -> Result<ClaimReply, ServerFault> {
        if self.has_locks() {
            let answer = self.call(call).await?;
            return self.read_claim(call.name(), &answer);
        }
        // Reads the attributes after the grant, because from then on only the holder changes them.
        let mut read = redis::cmd("HGETALL");
        read.arg(self.keys.attributes(key).to_string());
        let answers = self.send(Request::ScriptThen(call, &read), Permit::Required).await?;
        let Value::Array(answers) = answers else { return Err(self.unreadable(call.name())) };
        let [answer, found] = &answers[..] else { return Err(self.unreadable(call.name())) };
        let ClaimReply::Granted(request, token, _) = self.read_claim(call.name(), answer)? else {
            return self.read_claim(call.name(), answer);
        };
        let found = match found {
            // While the slot moves, the attributes may be on another node.
            Value::Nil | Value::ServerError(_) => &self.command(&read).await?,
            found => found,
        };
        let attributes = read_attributes(found).ok_or_else(|| self.unreadable(call.name()))?;
        Ok(ClaimReply::Granted(request, token, attributes.unwrap_or_default()))
    }

    pub(crate) async fn call_bool(&self, call: &Call) -> Result<bool, ServerFault> {
        match self.call_at_once(call).await? {
            Value::Int(0) => Ok(false),
            Value::Int(_) => Ok(true),
            _ => Err(self.unreadable(call.name())),
        }
    }

    /// Parses `{'granted' or 'again', token, attributes, request}`, `{'held', lessee, token, milliseconds,
    /// name of the grant, key and token of the session}` or `{'free'}`.
    pub(crate) fn read_claim(
        &self,
        script: &str,
        answer: &Value,
    ) -> Result<ClaimReply, ServerFault> {
        let unreadable = || self.unreadable(script);
        let Value::Array(items) = answer else { return Err(unreadable()) };
        let word = |index: usize| items.get(index).and_then(text).ok_or_else(unreadable);
        let token = |index: usize| token(&word(index)?).map_err(|_| unreadable());
        match word(0)?.as_str() {
            "granted" | "again" => {
                let attributes = items.get(2).ok_or_else(unreadable)?;
                let attributes = read_attributes(attributes).ok_or_else(unreadable)?;
                let request = word(3)?.parse::<u64>().map_err(|_| unreadable())?;
                let request = (request > 0).then_some(RequestNumber::new(request));
                let token = token(1)?.ok_or_else(unreadable)?;
                Ok(ClaimReply::Granted(request, token, attributes.unwrap_or_default()))
            }
            "held" => {
                let lessee = Lessee::new(word(1)?).map_err(|_| unreadable())?;
                // Negative if the holder has just expired.
                let left = word(3)?.parse::<i64>().map_err(|_| unreadable())?;
                let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
                let mut holder = Holder::new(lessee, Some(left));
                holder.token = token(2)?;
                holder.grant = Some(word(4)?).filter(|id| !id.is_empty()).map(GrantId::new);
                if let Ok(key) = word(5) {
                    let key = LeaseKey::new(key).map_err(|_| unreadable())?;
                    holder.parent = Some(Parent::new(key, token(6)?.ok_or_else(unreadable)?));
                    // No time ends a lease under a session.
                    holder.expires_in = None;
                }
                Ok(ClaimReply::Held(holder))
            }
            "free" => Ok(ClaimReply::Gone),
            _ => Err(unreadable()),
        }
    }

    fn read_heartbeat(&self, answer: &Value) -> Result<Heartbeat, ServerFault> {
        let unreadable = || self.unreadable("heartbeat");
        let reason = match answer {
            Value::Int(1) => return Ok(Heartbeat::Extended),
            Value::BulkString(reason) => &reason[..],
            _ => return Err(unreadable()),
        };
        match reason {
            b"overtaken" => Ok(Heartbeat::Overtaken),
            b"expired" => Ok(Heartbeat::Lost(LossCause::Expired)),
            b"revoked" => Ok(Heartbeat::Lost(LossCause::Revoked)),
            b"superseded" => Ok(Heartbeat::Lost(LossCause::Superseded)),
            [b'!', error @ ..] => Err(from_script(&self.name, &String::from_utf8_lossy(error))),
            _ => Err(unreadable()),
        }
    }

    /// Returns, for each grant, whether it held its key.
    pub(crate) fn read_releases(
        &self,
        reply: &Value,
        count: usize,
    ) -> Result<Vec<Result<bool, ServerFault>>, ServerFault> {
        match reply {
            Value::Int(held) if usize::try_from(*held) == Ok(count) => Ok(vec![Ok(true); count]),
            Value::Array(answers) if answers.len() == count => {
                Ok(answers.iter().map(|answer| self.read_release(answer)).collect())
            }
            _ => Err(self.unreadable("release")),
        }
    }

    fn read_release(&self, answer: &Value) -> Result<bool, ServerFault> {
        match answer {
            Value::Int(held) => Ok(*held == 1),
            Value::BulkString(error) => match &error[..] {
                [b'!', error @ ..] => Err(from_script(&self.name, &String::from_utf8_lossy(error))),
                _ => Err(self.unreadable("release")),
            },
            _ => Err(self.unreadable("release")),
        }
    }

    /// In a Cluster, `SPUBLISH` publishes to the nodes of one shard.
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

fn named(call: Call, grant: &Grant) -> Call {
    call.arg(nonce_text(grant.nonce)).number(request_of(grant)).number(grant.token.get())
}

/// Returns 0 if the store does not know the number. Then the key is a record.
fn request_of(grant: &Grant) -> u64 {
    grant.request.map_or(0, RequestNumber::get)
}
