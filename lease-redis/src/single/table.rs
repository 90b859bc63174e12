//! The record operations of `RedisStore`: records with attributes on one logical server.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::store::{Grant, LastGrant, LeaseRecord, LeaseTable, Reserved};
use lease_core::{
    Attributes, Change, FencingToken, Holder, InvalidInput, LeaseKey, Lessee, LossCause,
    StoreError, StoreErrorKind, Value as Attribute, Written,
};
use redis::Value;

use crate::connection::node::Node;
use crate::error::{ServerFault, from_script};
use crate::scripts::attributes::{MAX_LEVELS, read_attributes, write};
use crate::scripts::{self, Call, count, millis, text};
use crate::single::requests::ClaimReply;
use crate::single::{RedisStore, lock_text};

/// [`list`](LeaseTable::list) omits keys that are only leased, because otherwise each grant would write the
/// index.
#[async_trait]
impl LeaseTable for RedisStore {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        Ok(self.record(key).await?.map(|(record, _)| record))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        let pages = stream::unfold(Some((prefix.to_owned(), None)), move |place| async move {
            let (prefix, after) = place?;
            match listed_names(&self.node, &prefix, after.as_deref()).await {
                Ok(names) => {
                    let next = names.last().cloned().map(|last| (prefix, Some(last)));
                    Some((Ok(names), next))
                }
                Err(fault) => Some((Err(fault), None)),
            }
        });
        let records = pages.flat_map(move |page| match page {
            Ok(names) => stream::iter(names)
                .map(move |name| async move { self.listed_record(name).await.transpose() })
                .buffer_unordered(READ_AT_ONCE)
                .filter_map(|record| async move { record })
                .boxed(),
            Err(fault) => stream::iter([Err(fault)]).boxed(),
        });
        records.map(|record| record.map_err(StoreError::from)).boxed()
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        let keys = &self.node.keys;
        let call = scripts::CREATE.on([keys.lease(key), keys.attributes(key)]);
        let mut call = self.node.with_locks(call);
        for (name, value) in attributes {
            call = call.arg(name.as_str()).arg(written(name, value)?);
        }
        // Adds the name twice, for the same reasons as `claim_by_script`.
        self.put_on_list(key).await?;
        let created = self.node.call_bool(&call).await?;
        self.put_on_list(key).await?;
        Ok(created)
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        match self.fenced(&self.update_call(grant, change, Listed::NotYet)?).await? {
            FencedWrite::Written(written) => Ok(written),
            FencedWrite::Unlisted => {
                self.put_on_list(&grant.key).await?;
                let update = self.update_call(grant, change, Listed::Already)?;
                let updated = self.fenced(&update).await?;
                // Adds the name again, as in `create`.
                self.put_on_list(&grant.key).await?;
                match updated {
                    FencedWrite::Written(written) => Ok(written),
                    FencedWrite::Unlisted => Err(self.node.unreadable("update").into()),
                }
            }
        }
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        let keys = &self.node.keys;
        let call = self
            .node
            .under(scripts::TRANSFER.on([keys.lease(&grant.key)]), grant)
            .arg(to.as_str())
            .number(millis(reserved))
            .number(millis(self.node.retention))
            .arg(self.node.publish())
            .arg(keys.channel(&grant.key));
        self.written(&call).await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        let keys = &self.node.keys;
        let call = scripts::DELETE.on([keys.lease(&grant.key), keys.attributes(&grant.key)]);
        let call = self
            .node
            .under(call, grant)
            .number(millis(self.node.retention))
            .arg(self.node.publish())
            .arg(keys.channel(&grant.key));
        let written = self.written(&call).await?;
        if written == Written::Applied {
            // If the removal fails, `list` skips the name, because it has no record.
            drop(self.take_off_list(&grant.key).await);
        }
        Ok(written)
    }
}

enum FencedWrite {
    Written(Written),
    /// The client must add the record to the index before the script may create the record.
    Unlisted,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listed {
    NotYet,
    Already,
}

impl RedisStore {
    fn update_call(
        &self,
        grant: &Grant,
        change: &Change,
        listed: Listed,
    ) -> Result<Call, StoreError> {
        let keys = &self.node.keys;
        let with_value = || change.expected().filter_map(|(name, value)| Some((name, value?)));
        let absent = || change.expected().filter(|(_, value)| value.is_none());
        let call = scripts::UPDATE.on([keys.lease(&grant.key), keys.attributes(&grant.key)]);
        let mut call = self
            .node
            .under(call, grant)
            .number(millis(self.node.retention))
            .number(u64::from(listed == Listed::Already))
            .number(count(change.assigned().count()))
            .number(count(with_value().count()))
            .number(count(absent().count()));
        // The script compares expected values as texts, so each value must have only one text.
        for (name, value) in change.assigned().chain(with_value()) {
            call = call.arg(name).arg(written(name, value)?);
        }
        for name in absent().map(|(name, _)| name).chain(change.removed()) {
            call = call.arg(name);
        }
        Ok(call)
    }

    async fn written(&self, call: &Call) -> Result<Written, StoreError> {
        match self.fenced(call).await? {
            FencedWrite::Written(written) => Ok(written),
            FencedWrite::Unlisted => Err(self.node.unreadable(call.name()).into()),
        }
    }

    async fn fenced(&self, call: &Call) -> Result<FencedWrite, ServerFault> {
        let answer = text(&self.node.call(call).await?).unwrap_or_default();
        let lost = |cause| Ok(FencedWrite::Written(Written::Lost(cause)));
        match answer.as_str() {
            "applied" => Ok(FencedWrite::Written(Written::Applied)),
            "unexpected" => Ok(FencedWrite::Written(Written::Unexpected)),
            "unlisted" => Ok(FencedWrite::Unlisted),
            "expired" => lost(LossCause::Expired),
            "revoked" => lost(LossCause::Revoked),
            "superseded" => lost(LossCause::Superseded),
            _ => Err(self.node.unreadable(call.name())),
        }
    }

    /// Also returns whether the record outlasts the lease.
    async fn record(&self, key: &LeaseKey) -> Result<Option<(LeaseRecord, bool)>, ServerFault> {
        let records = self.node.records(std::slice::from_ref(key)).await?;
        let read = records.into_iter().next().ok_or_else(|| self.node.unreadable("read"))??;
        let lasts = read.attributes.is_some();
        if !lasts && read.holder.is_none() {
            return Ok(None);
        }
        Ok(Some((read.into_record(key), lasts)))
    }

    /// Removes a name without a record from the index.
    async fn listed_record(&self, name: String) -> Result<Option<LeaseRecord>, ServerFault> {
        let key = LeaseKey::new(name).map_err(|_| self.node.unreadable("list"))?;
        if let Some((record, true)) = self.record(&key).await? {
            return Ok(Some(record));
        }
        self.take_off_list(&key).await?;
        Ok(None)
    }

    pub(crate) async fn put_on_list(&self, key: &LeaseKey) -> Result<(), ServerFault> {
        let mut add = redis::cmd("ZADD");
        add.arg(self.node.keys.index()).arg(0).arg(key.as_str());
        self.node.command(&add).await.map(drop)
    }

    /// Adds the name again if its record was created in the meantime. The creator lists the name before and
    /// after, so one of the two requests sees the other.
    async fn take_off_list(&self, key: &LeaseKey) -> Result<(), ServerFault> {
        let mut remove = redis::cmd("ZREM");
        remove.arg(self.node.keys.index()).arg(key.as_str());
        drop(self.node.command(&remove).await?);
        match self.record(key).await? {
            Some((_, true)) => self.put_on_list(key).await,
            _ => Ok(()),
        }
    }
}

pub(crate) async fn listed_names(
    node: &Node,
    prefix: &str,
    after: Option<&str>,
) -> Result<Vec<String>, ServerFault> {
    let from = after.map_or_else(|| format!("[{prefix}"), |last| format!("({last}"));
    // No name contains the byte 0xFF, which is not UTF-8.
    let mut until = format!("({prefix}").into_bytes();
    until.push(0xff);
    let mut range = redis::cmd("ZRANGEBYLEX");
    range.arg(node.keys.index()).arg(from).arg(until);
    range.arg("LIMIT").arg(0).arg(PAGE);
    match node.command(&range).await? {
        Value::Array(names) => {
            let names: Option<Vec<_>> = names.iter().map(text).collect();
            names.ok_or_else(|| node.unreadable("list"))
        }
        _ => Err(node.unreadable("list")),
    }
}

pub(crate) struct RecordFields {
    pub(crate) holder: Option<Holder>,
    pub(crate) token: Option<FencingToken>,
    /// `None` if nothing outlasts the lease.
    pub(crate) attributes: Option<Attributes>,
    last_grant: LastGrant,
    pub(crate) reserved: Option<Reserved>,
}

impl RecordFields {
    pub(crate) fn into_record(self, key: &LeaseKey) -> LeaseRecord {
        let attributes = self.attributes.unwrap_or_default();
        LeaseRecord::new(key.clone(), self.holder, self.token, attributes)
            .with_end(self.last_grant, self.reserved)
    }
}

impl Node {
    /// In a Cluster, the caller passes one key.
    pub(crate) async fn records(
        &self,
        keys: &[LeaseKey],
    ) -> Result<Vec<Result<RecordFields, ServerFault>>, ServerFault> {
        let names: Vec<_> =
            keys.iter().flat_map(|key| [self.keys.lease(key), self.keys.attributes(key)]).collect();
        let call = self.with_locks(scripts::READ.on(names));
        match self.call(&call).await? {
            Value::Array(answers) if answers.len() == keys.len() => {
                Ok(answers.iter().map(|answer| self.read_record(answer)).collect())
            }
            _ => Err(self.unreadable("read")),
        }
    }

    /// Parses `{holder, token, attributes, 1 if the last grant has ended, reservation}`.
    pub(crate) fn read_record(&self, answer: &Value) -> Result<RecordFields, ServerFault> {
        let unreadable = || self.unreadable("read");
        if let Value::BulkString(error) = answer
            && let [b'!', error @ ..] = &error[..]
        {
            return Err(from_script(&self.name, &String::from_utf8_lossy(error)));
        }
        let Value::Array(items) = answer else { return Err(unreadable()) };
        let [holder, token, attributes, ended, reserved] = items.as_slice() else {
            return Err(unreadable());
        };
        let holder = match self.read_claim("read", holder)? {
            ClaimReply::Held(holder) => Some(holder),
            _ => None,
        };
        let token = match text(token) {
            Some(text) => lock_text::token(&text).map_err(|_| unreadable())?,
            None => holder.as_ref().and_then(|holder| holder.token),
        };
        let attributes = read_attributes(attributes).ok_or_else(unreadable)?;
        let last_grant = match ended {
            Value::Int(1) => LastGrant::Ended,
            _ => LastGrant::Open,
        };
        let reserved = read_reservation(reserved).ok_or_else(unreadable)?;
        Ok(RecordFields { holder, token, attributes, last_grant, reserved })
    }
}

/// The outer `None` means that the reply is unreadable. The inner `None` means that no reservation exists.
#[expect(clippy::option_option, reason = "unreadable and absent are different results")]
fn read_reservation(reply: &Value) -> Option<Option<Reserved>> {
    let Value::Array(items) = reply else { return None };
    let [only, left] = &items[..] else { return items.is_empty().then_some(None) };
    let only = Some(text(only)?).filter(|only| !only.is_empty());
    let only = only.map(Lessee::new).transpose().ok()?;
    Some(Some(Reserved::new(only, Duration::from_millis(text(left)?.parse().ok()?))))
}

pub(crate) fn written(name: &str, value: &Attribute) -> Result<String, StoreError> {
    write(value).ok_or_else(|| {
        let sentence = format!(
            "the attribute {name:?} is nested more than {MAX_LEVELS} levels deep, or has a type that \
             lease-redis does not support"
        );
        StoreError::new(StoreErrorKind::Refused, InvalidInput::new(sentence))
    })
}

const PAGE: usize = 100;

const READ_AT_ONCE: usize = 32;
