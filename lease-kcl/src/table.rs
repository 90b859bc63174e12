//! The table operations: attributes, listing, deletion and eviction.

use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_aws::table_client::{
    Expression, IntoValue, RawItem, ReturnItem, WriteOutcome, corrupt_column, store_error,
    to_dynamodb,
};
use lease_core::store::{Grant, LeaseRecord, LeaseTable};
use lease_core::{
    Attributes, Change, LeaseKey, Lessee, LossCause, StoreError, StoreErrorKind, Value, Written,
};
use lease_kinesis::InitialPosition;
use lease_kinesis::extension::shard_row::{AT_TIMESTAMP, CHECKPOINT, LATEST, OWNER, TIMESTAMP};

use crate::row::{COUNTER, LEASE_KEY, Row, is_reserved, key_of};
use crate::store::{KclTable, why_lost};
use crate::write;

#[async_trait]
impl LeaseTable for KclTable {
    /// If a KCL worker holds the lease, the attributes include `leaseOwner`.
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let Some(lease_key) = self.lease_key(key)? else {
            return self.shared.ours.read(key).await;
        };
        let row = self.row(lease_key).await?;
        Ok(row.map(|row| self.record(key.clone(), lease_key, row)))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        let ours = self.shared.ours.list(prefix);
        let shards = self.shared.shards.as_str();
        let rest = prefix.strip_prefix(shards);
        if rest.is_none() && !shards.starts_with(prefix) {
            return ours;
        }
        let rest = rest.unwrap_or_default().to_owned();
        let pages = stream::unfold(Next::Page(None), move |next| {
            let rest = rest.clone();
            async move {
                let Next::Page(start) = next else { return None };
                let consistent = self.shared.settings.consistent_listing;
                match self.shared.requests.scan(&rest, start, consistent).await {
                    Ok(page) => {
                        let next = page.next.map_or(Next::Nothing, |key| Next::Page(Some(key)));
                        Some((self.records(page.items), next))
                    }
                    // The start of the next page is unknown, so the stream ends.
                    Err(error) => Some((vec![Err(error)], Next::Nothing)),
                }
            }
        });
        pages.flat_map(stream::iter).chain(ours).boxed()
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        let Some(lease_key) = self.lease_key(key)? else {
            return self.shared.ours.create(key, attributes).await;
        };
        if !attributes.contains_key(CHECKPOINT) {
            let text =
                format!("row {lease_key:?} has no checkpoint, without which KCL workers stop");
            return Err(store_error(StoreErrorKind::Refused, text));
        }
        let mut row = RawItem::from([(COUNTER.to_owned(), 0_u64.into_value())]);
        // If an application reads several streams, KCL reads the stream and the shard from these attributes.
        if let Some((stream, shard)) = lease_key.rsplit_once(':') {
            row.insert("streamName".to_owned(), stream.into_value());
            row.insert("shardId".to_owned(), shard.into_value());
        }
        for (name, value) in attributes {
            refuse_reserved(name)?;
            row.insert(name.clone(), self.to_stored(name, value)?);
        }
        let write = write::create().render(write::column);
        let outcome = self.shared.requests.put(lease_key, row, write).await?;
        Ok(matches!(outcome, WriteOutcome::Applied(_)))
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        let Some(lease_key) = self.lease_key(&grant.key)? else {
            return self.shared.ours.update(grant, change).await;
        };
        let write = self.changing(write::update(grant), change)?;
        if self.has_expired(lease_key, grant) {
            return Ok(Written::Lost(LossCause::Expired));
        }
        match self.write(lease_key, write, ReturnItem::IfRefused).await? {
            WriteOutcome::Applied(_) => Ok(Written::Applied),
            WriteOutcome::Refused(raw) => {
                // A lost grant never becomes valid again. So a grant that is valid now was valid before.
                let row = self.row_after_refusal(lease_key, raw).await?;
                Ok(match &row {
                    Some(row) if row.is_held_by(grant) => Written::Unexpected,
                    row => Written::Lost(why_lost(grant, row.as_ref())),
                })
            }
        }
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        let Some(lease_key) = self.lease_key(&grant.key)? else {
            return self.shared.ours.transfer(grant, to, reserved).await;
        };
        if self.has_expired(lease_key, grant) {
            return Ok(Written::Lost(LossCause::Expired));
        }
        let write = write::transfer(grant, to, reserved);
        let WriteOutcome::Refused(raw) =
            self.write(lease_key, write, ReturnItem::IfRefused).await?
        else {
            return Ok(Written::Applied);
        };
        let row = self.row_after_refusal(lease_key, raw).await?;
        // An earlier attempt of the SDK made the transfer, and its answer was lost.
        let is_done = row.as_ref().is_some_and(|row| {
            row.shows(grant)
                && row.reserved().is_some()
                && row.owner.as_ref() == Some(to)
                && row.former() == Some(&grant.lessee)
        });
        Ok(if is_done { Written::Applied } else { Written::Lost(why_lost(grant, row.as_ref())) })
    }

    /// KCL would read a tombstone as a lease. The first token of a later row is the current time.
    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        let Some(lease_key) = self.lease_key(&grant.key)? else {
            return self.shared.ours.delete(grant).await;
        };
        let condition = write::delete(grant).render(write::column);
        let WriteOutcome::Refused(raw) = self.shared.requests.delete(lease_key, condition).await?
        else {
            return Ok(Written::Applied);
        };
        let row = self.row_after_refusal(lease_key, raw).await?;
        // An earlier attempt or another process has removed a missing row.
        Ok(row.map_or(Written::Applied, |row| Written::Lost(why_lost(grant, Some(&row)))))
    }
}

enum Next {
    Page(Option<RawItem>),
    Nothing,
}

impl KclTable {
    fn records(&self, rows: Vec<RawItem>) -> Vec<Result<LeaseRecord, StoreError>> {
        let records = rows.into_iter().map(|raw| {
            let lease_key = key_of(&raw).unwrap_or_default().to_owned();
            let Some(row) = self.read(&lease_key, raw)? else { return Ok(None) };
            let key = LeaseKey::new(format!("{}{lease_key}", self.shared.shards))
                .map_err(|refused| corrupt_column(&lease_key, LEASE_KEY, refused))?;
            Ok(Some(self.record(key, &lease_key, row)))
        });
        records.filter_map(Result::transpose).collect()
    }

    fn record(&self, key: LeaseKey, lease_key: &str, row: Row) -> LeaseRecord {
        let holder = self.holder_of(lease_key, &row);
        let (is_ours, token, mut attributes) = (row.is_ours(), row.token(), row.attributes);
        if let Some(holder) = holder.as_ref().filter(|_| !is_ours) {
            attributes.insert(OWNER.to_owned(), holder.lessee.as_str().into());
        }
        LeaseRecord::new(key, holder, token, attributes)
    }

    pub(crate) fn changing(
        &self,
        mut write: Expression,
        change: &Change,
    ) -> Result<Expression, StoreError> {
        for (name, value) in change.assigned() {
            refuse_reserved(name)?;
            write.set_payload(name, self.to_stored(name, value)?);
        }
        for name in change.removed() {
            refuse_reserved(name)?;
            write.remove_payload(name);
        }
        for (name, value) in change.expected() {
            refuse_reserved(name)?;
            write.expect_payload(name, self.stored_as(name, value)?);
        }
        // As in KCL, each checkpoint removes a prepared checkpoint.
        if change.assigned().any(|(name, _)| name == CHECKPOINT) {
            for name in PENDING {
                let is_named = change.assigned().any(|(assigned, _)| assigned == name)
                    || change.removed().any(|removed| removed == name);
                if !is_named {
                    write.remove_payload(name);
                }
            }
        }
        Ok(write)
    }

    /// Returns `LATEST` for `AT_TIMESTAMP`, unless the initial position is a time.
    fn to_stored(&self, name: &str, value: &Value) -> Result<AttributeValue, StoreError> {
        let is_for_times = matches!(self.shared.settings.initial, InitialPosition::AtTimestamp(_));
        if name == CHECKPOINT && value.as_text() == Some(AT_TIMESTAMP) && !is_for_times {
            return Ok(LATEST.into_value());
        }
        to_dynamodb(value).map_err(|refused| {
            store_error(StoreErrorKind::Refused, format!("attribute {name:?} is {refused}"))
        })
    }

    /// Returns all stored values that may stand for `value`: what `to_stored` returns, and what `Row::read` completes.
    fn stored_as(
        &self,
        name: &str,
        value: Option<&Value>,
    ) -> Result<Vec<Option<AttributeValue>>, StoreError> {
        let Some(value) = value else { return Ok(vec![None]) };
        if name == CHECKPOINT && value.as_text() == Some(AT_TIMESTAMP) {
            return Ok([AT_TIMESTAMP, LATEST].map(|word| Some(word.into_value())).into());
        }
        let mut kept = vec![Some(self.to_stored(name, value)?)];
        if let InitialPosition::AtTimestamp(at) = self.shared.settings.initial
            && name == TIMESTAMP
            && *value == Value::from(at)
        {
            kept.push(None);
        }
        Ok(kept)
    }
}

fn refuse_reserved(name: &str) -> Result<(), StoreError> {
    if name.is_empty() || is_reserved(name) {
        let text = format!("attribute {name:?} belongs to the lease itself: choose another name");
        return Err(store_error(StoreErrorKind::Refused, text));
    }
    Ok(())
}

/// The attributes of a checkpoint that KCL has prepared and not committed.
const PENDING: [&str; 3] =
    ["pendingCheckpoint", "pendingCheckpointSubSequenceNumber", "pendingCheckpointState"];
