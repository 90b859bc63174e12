//! The record operations of `PostgresStore`: records with attributes.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, Stream};
use lease_core::store::{Grant, LeaseRecord, LeaseTable};
use lease_core::{Attributes, Change, LeaseKey, Lessee, LossCause, StoreError, Written};
use tokio_postgres::Row;

use crate::attributes::escaped;
use crate::connection::database::Lane;
use crate::error::ServerFault;
use crate::reply::{column, key as key_of, record};
use crate::statements::{self, Call, micros};
use crate::store::{PostgresStore, loss, written};

/// A key has a record while it is held. A record with attributes stays.
#[async_trait]
impl LeaseTable for PostgresStore {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let call = self.call(statements::READ).text(key.as_str());
        let rows = self.database.run(Lane::Claims, call).await?;
        let record = |row| record(key.clone(), row);
        Ok(rows.first().map(record).transpose()?.flatten())
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        self.pages(statements::LIST, prefix.to_owned())
            .map(|record| record.map_err(StoreError::from))
            .boxed()
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        let attributes = written(attributes.iter().map(|(name, value)| (name.as_str(), value)))?;
        let call = self.call(statements::CREATE).text(key.as_str()).text(attributes);
        let call = call.text(self.database.lock_timeout());
        Ok(!self.database.run(Lane::Claims, call).await?.is_empty())
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        let expected = change.expected().filter_map(|(name, value)| Some((name, value?)));
        let absent = change.expected().filter(|(_, value)| value.is_none());
        let call = self.under(statements::UPDATE, grant).text(written(change.assigned())?);
        let call = call.texts(change.removed().map(escaped).collect());
        let call = call.text(written(expected)?);
        let call = call.texts(absent.map(|(name, _)| escaped(name)).collect());
        self.written(call.text(self.database.lock_timeout())).await
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        let call = self.under(statements::TRANSFER, grant).text(to.as_str());
        let call = call.number(micros(reserved)).text(self.channel());
        self.written(call.text(self.database.lock_timeout())).await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        let call = self.under(statements::DELETE, grant).text(self.channel());
        self.written(call.text(self.database.lock_timeout())).await
    }
}

impl PostgresStore {
    /// Deletes the rows of keys that have no record and were not used for `age`, at most 10,000 rows. Returns
    /// their number.
    ///
    /// A released key keeps its row, because the row has the last token and nonce. Call this method from time
    /// to time if you always lease new keys. `age` should be at least [a
    /// week](lease_core::LeaseOptions::MAX_RESERVATION). The role needs the right `DELETE`. A deleted key
    /// gets its next token from the server's time. This token is larger than the last token, unless the
    /// server's clock was set back by at least `age`.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown, or the role lacks the right.
    pub async fn purge(&self, age: Duration) -> Result<u64, StoreError> {
        let call = self.call(statements::PURGE).number(micros(age)).number(PURGED_AT_ONCE);
        let rows = self.database.run(Lane::Claims, call).await?;
        Ok(u64::try_from(rows.len()).unwrap_or(u64::MAX))
    }

    async fn written(&self, call: Call) -> Result<Written, StoreError> {
        let rows = self.database.run(Lane::Holders, call).await?;
        let Some(row) = rows.first() else { return Ok(Written::Lost(LossCause::Expired)) };
        let verdict: String = column(row, "verdict")?;
        Ok(match verdict.as_str() {
            "applied" => Written::Applied,
            "unexpected" => Written::Unexpected,
            cause => Written::Lost(loss(cause)),
        })
    }

    pub(crate) fn pages(
        &self,
        statement: &'static str,
        prefix: String,
    ) -> impl Stream<Item = Result<LeaseRecord, ServerFault>> + Send {
        let pages = stream::unfold(Some(None), move |place: Option<Option<String>>| {
            let prefix = prefix.clone();
            async move {
                let last = place?;
                match self.page(statement, &prefix, last).await {
                    Ok((records, next)) => Some((records, next.map(Some))),
                    Err(fault) => Some((vec![Err(fault)], None)),
                }
            }
        });
        pages.flat_map(stream::iter)
    }

    /// Returns the page's last key if more keys follow.
    async fn page(
        &self,
        statement: &str,
        prefix: &str,
        last: Option<String>,
    ) -> Result<(Vec<Result<LeaseRecord, ServerFault>>, Option<String>), ServerFault> {
        let size = if statement == statements::LIST { LIST_PAGE } else { SCAN_PAGE };
        let from = last.clone().unwrap_or_else(|| prefix.to_owned());
        let call = self.call(statement).text(from).optional_text(last).number(size);
        let rows = self.database.run(Lane::Claims, call).await?;
        let mut records = Vec::new();
        let mut next = None;
        for row in &rows {
            let text: String = column(row, "key")?;
            if !text.starts_with(prefix) {
                return Ok((records, None));
            }
            records.extend(listed(row).transpose());
            next = Some(text);
        }
        let is_full = i64::try_from(rows.len()).is_ok_and(|rows| rows == size);
        Ok((records, next.filter(|_| is_full)))
    }
}

fn listed(row: &Row) -> Result<Option<LeaseRecord>, ServerFault> {
    record(key_of(row)?, row)
}

const LIST_PAGE: i64 = 200;
const SCAN_PAGE: i64 = 1000;
const PURGED_AT_ONCE: i64 = 10_000;
