//! The table: attributes, listing, and what an operator does.

use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::{
    Attributes, Change, FencingToken, Grant, LeaseKey, LeaseRecord, LeaseTable, Lessee, StoreError,
    StoreErrorKind, Value, Written,
};

use crate::column::Column;
use crate::item::{Item, key_of};
use crate::parts::{
    Expression, IntoValue, MAX_ITEM_BYTES, Outcome, RawItem, Show, bytes_of, to_dynamodb, told,
};
use crate::store::{DynamoDbStore, why_lost};
use crate::write;

#[async_trait]
impl LeaseTable for DynamoDbStore {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let Some(raw) = self.shared.requests.get(key.as_str()).await? else {
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
                match self.shared.requests.scan(&prefix, start, consistent).await {
                    Ok(page) => {
                        let next = page.next.map_or(Next::Nothing, |key| Next::Page(Some(key)));
                        Some((self.records(page.items), next))
                    }
                    // Where the page after this one begins is not known: the stream ends.
                    Err(error) => Some((vec![Err(error)], Next::Nothing)),
                }
            }
        });
        pages.flat_map(stream::iter).boxed()
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        let settings = &self.shared.settings;
        let mut write = write::create(settings);
        self.set_all(key, &mut write, attributes.iter().map(|(n, v)| (n.as_str(), v)))?;
        let outcome = self.write(key, write, Show::Nothing).await?;
        Ok(matches!(outcome, Outcome::Applied(_)))
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        let settings = &self.shared.settings;
        let mut write = write::standing(grant, settings, self.now());
        self.set_all(&grant.key, &mut write, change.assigned())?;
        for name in change.removed() {
            self.refuse_reserved(name)?;
            write.remove_payload(name);
        }
        for (name, value) in change.expected() {
            self.refuse_reserved(name)?;
            let value = value.map(|value| as_sent(name, value)).transpose()?;
            write.expect_payload(name, [value]);
        }
        write::last(&mut write, settings);
        match self.write(&grant.key, write, Show::RefusedItem).await? {
            Outcome::Applied(_) => Ok(Written::Applied),
            Outcome::Refused(shown) => {
                let item = self.shown(&grant.key, shown).await?;
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
        let outcome = self.write(&grant.key, write, Show::RefusedItem).await?;
        self.ended(grant, outcome, |item| item.offered_to.as_ref() == Some(to)).await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        let shared = &self.shared;
        let (settings, columns) = (&shared.settings, &shared.settings.columns);
        let now = self.now();
        let standing = write::standing(grant, settings, now);
        // What is put replaces the whole item: every attribute goes, whatever its name.
        let mut tombstone = RawItem::new();
        let mut keep = |column, value| tombstone.insert(columns.name(column).to_owned(), value);
        keep(Column::Nonce, grant.nonce.into_value());
        keep(Column::Token, grant.token.get().into_value());
        keep(Column::Former, grant.lessee.as_str().into_value());
        keep(Column::Deleted, true.into_value());
        if let Some(purge_at) = write::purge_at(settings, now, grant.ttl) {
            keep(Column::PurgeAt, purge_at.into_value());
        }
        let standing = standing.written(|placeholder| columns.behind(placeholder));
        let outcome = shared.requests.put(grant.key.as_str(), tombstone, standing).await?;
        self.ended(grant, outcome, |item| item.deleted).await
    }

    async fn evict(&self, key: &LeaseKey, token: FencingToken) -> Result<bool, StoreError> {
        let write = write::evict(token, &self.shared.settings, self.now());
        let outcome = self.write(key, write, Show::Nothing).await?;
        Ok(matches!(outcome, Outcome::Applied(_)))
    }
}

/// What a listing does next.
enum Next {
    /// Reads the page that begins after this key, or the first one.
    Page(Option<RawItem>),
    Nothing,
}

impl DynamoDbStore {
    /// What became of a write that ends `grant`. An item that shows its effect was written by an
    /// earlier try of the SDK, whose answer was lost.
    async fn ended(
        &self,
        grant: &Grant,
        outcome: Outcome,
        shows_effect: impl Fn(&Item) -> bool,
    ) -> Result<Written, StoreError> {
        let Outcome::Refused(shown) = outcome else {
            return Ok(Written::Applied);
        };
        let item = self.shown(&grant.key, shown).await?;
        let is_ours = item.as_ref().is_some_and(|item| {
            item.shows(grant) && item.former.as_ref() == Some(&grant.lessee) && shows_effect(item)
        });
        Ok(if is_ours { Written::Applied } else { Written::Lost(why_lost(grant, item.as_ref())) })
    }

    /// A refused update hit a lost grant or an unexpected attribute. Grants do not come back, so
    /// one that stands in an item that was read later stood then: it was an attribute.
    fn why_not_updated(&self, grant: &Grant, change: &Change, item: Option<&Item>) -> Written {
        match item {
            Some(item) if change.expected().next().is_some() && self.stands(grant, item) => {
                Written::Unexpected
            }
            item => Written::Lost(why_lost(grant, item)),
        }
    }

    fn record(&self, key: LeaseKey, raw: RawItem) -> Result<Option<LeaseRecord>, StoreError> {
        let item = self.item(&key, raw)?;
        let holder = self.holder_of(&key, &item);
        Ok(item.record(key, holder))
    }

    /// The records of one page; an item that cannot be read is an error of its own.
    fn records(&self, items: Vec<RawItem>) -> Vec<Result<LeaseRecord, StoreError>> {
        let columns = &self.shared.settings.columns;
        items
            .into_iter()
            .filter_map(|raw| {
                key_of(&raw, columns).and_then(|key| self.record(key, raw)).transpose()
            })
            .collect()
    }

    fn set_all<'a>(
        &self,
        key: &LeaseKey,
        write: &mut Expression,
        attributes: impl Iterator<Item = (&'a str, &'a Value)>,
    ) -> Result<(), StoreError> {
        let mut bytes = key.as_str().len();
        for (name, value) in attributes {
            self.refuse_reserved(name)?;
            bytes += bytes_of(name, value);
            write.set_payload(name, as_sent(name, value)?);
        }
        if bytes > MAX_ITEM_BYTES {
            return Err(told(
                StoreErrorKind::Refused,
                format!(
                    "attributes of {bytes} bytes do not fit into item {:?}: DynamoDB keeps items \
                     of up to 400 KB",
                    key.as_str()
                ),
            ));
        }
        Ok(())
    }

    fn refuse_reserved(&self, name: &str) -> Result<(), StoreError> {
        if name.is_empty() || self.shared.settings.columns.reserves(name) {
            return Err(told(
                StoreErrorKind::Refused,
                format!("attribute {name:?} is a column of the lease itself: choose another name"),
            ));
        }
        Ok(())
    }
}

fn as_sent(name: &str, value: &Value) -> Result<AttributeValue, StoreError> {
    to_dynamodb(value).map_err(|refused| {
        told(StoreErrorKind::Refused, format!("attribute {name:?} is {refused}"))
    })
}
