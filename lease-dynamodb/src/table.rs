//! The table: attributes, listing, and the operations of an operator.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::store::{Grant, LeaseRecord, LeaseTable, Reserved};
use lease_core::{Attributes, Change, LeaseKey, Lessee, StoreError, Written};

use lease_aws::table_client::{IntoValue, RawItem, ReturnItem, WriteOutcome};

use crate::items::{Column, Item, check_name, key_of, to_attribute_value, to_payload};
use crate::lease_state::LeaseState;
use crate::lease_state::why_lost;
use crate::store::DynamoDbStore;
use crate::write;

#[async_trait]
impl LeaseTable for DynamoDbStore {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let Some(raw) = self.shared.table.get(key.as_str()).await? else {
            return Ok(None);
        };
        self.record(key.clone(), raw)
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        let prefix = prefix.to_owned();
        let pages = stream::unfold(Next::Page(None), move |next| {
            let prefix = prefix.clone();
            async move {
                let Next::Page(start) = next else {
                    return None;
                };
                let consistent = self.shared.settings.consistent_listing;
                match self.shared.table.scan(&prefix, start, consistent).await {
                    Ok(page) => {
                        let next = page.next.map_or(Next::End, |key| Next::Page(Some(key)));
                        Some((self.records(page.items), next))
                    }
                    // The stream ends, since the start of the next page is unknown.
                    Err(error) => Some((vec![Err(error)], Next::End)),
                }
            }
        });
        pages.flat_map(stream::iter).boxed()
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        let settings = &self.shared.settings;
        let mut write = write::create(settings);
        let attributes = attributes.iter().map(|(name, value)| (name.as_str(), value));
        write.set_all_payload(to_payload(key, attributes, &settings.columns)?);
        let outcome = self.write(key, write, ReturnItem::Never).await?;
        Ok(matches!(outcome, WriteOutcome::Applied(_)))
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        let settings = &self.shared.settings;
        let columns = &settings.columns;
        let mut write = write::require_grant(grant, settings, self.now());
        write.set_all_payload(to_payload(&grant.key, change.assigned(), columns)?);
        for name in change.removed() {
            check_name(name, columns)?;
            write.remove_payload(name);
        }
        for (name, value) in change.expected() {
            check_name(name, columns)?;
            let value = value.map(|value| to_attribute_value(name, value)).transpose()?;
            write.expect_payload(name, [value]);
        }
        write::never_purge(&mut write, settings);
        match self.write(&grant.key, write, ReturnItem::IfRefused).await? {
            WriteOutcome::Applied(_) => Ok(Written::Applied),
            WriteOutcome::Refused(refused) => {
                let item = self.refused_item(&grant.key, refused).await?;
                Ok(self.why_not_updated(grant, change, item.as_ref()))
            }
        }
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        let write = write::transfer(grant, to, &self.shared.settings, self.now(), reserved);
        let outcome = self.write(&grant.key, write, ReturnItem::IfRefused).await?;
        self.ended(grant, outcome, |item| item.offered_to.as_ref() == Some(to)).await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        let shared = &self.shared;
        let (settings, columns) = (&shared.settings, &shared.settings.columns);
        let now = self.now();
        // PutItem replaces the whole item. So the write removes every attribute.
        let mut tombstone = RawItem::new();
        let mut keep = |column, value| tombstone.insert(columns.name(column).to_owned(), value);
        keep(Column::Nonce, grant.nonce.into_value());
        keep(Column::Token, grant.token.get().into_value());
        keep(Column::Former, grant.lessee.as_str().into_value());
        keep(Column::Deleted, true.into_value());
        if let Some(purge_at) = write::purge_at(settings, now, grant.ttl) {
            keep(Column::PurgeAt, purge_at.into_value());
        }
        let condition = write::require_grant(grant, settings, now);
        let condition = condition.render(|placeholder| columns.of_placeholder(placeholder));
        let outcome = shared.table.put(grant.key.as_str(), tombstone, condition).await?;
        self.ended(grant, outcome, |item| item.deleted).await
    }
}

enum Next {
    /// Reads the page after this key, or the first page.
    Page(Option<RawItem>),
    End,
}

impl DynamoDbStore {
    /// Returns the answer to a write that ends `grant`. If the refused item `shows_effect`,
    /// DynamoDB had applied an earlier attempt of the SDK, but the answer was lost.
    async fn ended(
        &self,
        grant: &Grant,
        outcome: WriteOutcome,
        shows_effect: impl Fn(&Item) -> bool,
    ) -> Result<Written, StoreError> {
        let WriteOutcome::Refused(refused) = outcome else {
            return Ok(Written::Applied);
        };
        let item = self.refused_item(&grant.key, refused).await?;
        let was_applied = item.as_ref().is_some_and(|item| {
            item.has_grant(grant)
                && item.former.as_ref() == Some(&grant.lessee)
                && shows_effect(item)
        });
        Ok(if was_applied {
            Written::Applied
        } else {
            Written::Lost(why_lost(grant, item.as_ref()))
        })
    }

    /// A lost grant is never current again. If `item` has the grant, the grant was current at the
    /// write. Then an attribute caused the refusal.
    fn why_not_updated(&self, grant: &Grant, change: &Change, item: Option<&Item>) -> Written {
        match item {
            Some(item) if change.expected().next().is_some() && self.is_current(grant, item) => {
                Written::Unexpected
            }
            item => Written::Lost(why_lost(grant, item)),
        }
    }

    fn record(&self, key: LeaseKey, raw: RawItem) -> Result<Option<LeaseRecord>, StoreError> {
        let item = self.item(&key, raw)?;
        Ok((!item.deleted).then(|| self.to_record(key, item)))
    }

    pub(crate) fn to_record(&self, key: LeaseKey, item: Item) -> LeaseRecord {
        let (holder, reserved) = match self.state(&key, &item, None) {
            LeaseState::Held(holder) => (Some(holder), None),
            LeaseState::Reserved(left) => {
                let left = left.unwrap_or(Duration::MAX);
                (None, Some(Reserved::new(item.offered_to.clone(), left)))
            }
            LeaseState::Free | LeaseState::Expired(_) => (None, None),
        };
        item.into_record(key, holder, reserved)
    }

    /// Each corrupt item becomes a separate error.
    fn records(&self, items: Vec<RawItem>) -> Vec<Result<LeaseRecord, StoreError>> {
        let columns = &self.shared.settings.columns;
        items
            .into_iter()
            .filter_map(|raw| {
                key_of(&raw, columns).and_then(|key| self.record(key, raw)).transpose()
            })
            .collect()
    }
}
