//! Requests to one table: each within its time limit, each answer told from the others.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::error::ConditionalCheckFailedException as Refusal;
use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure as OnRefusal,
};
use lease_core::StoreError;

use super::error::{Advice, failed, timed_out};
use super::expression::{IntoValue, Written};

/// An item as DynamoDB sends it.
pub type RawItem = HashMap<String, AttributeValue>;

/// Sends requests to one table.
#[derive(Debug)]
pub struct Requests {
    pub(super) client: Client,
    pub(super) table: Table,
    limit: Duration,
}

/// A table whose items are told apart by a text.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "for the tables of this repository")]
pub struct Table {
    pub name: String,
    /// The column of that text.
    pub key: String,
    pub advice: Advice,
}

/// What became of a conditional write.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a condition is fulfilled or it is not")]
pub enum Outcome {
    /// The item after the write, where it was asked for.
    Applied(RawItem),
    /// The item that did not fulfil the condition, where it was asked for and there is one.
    Refused(Option<RawItem>),
}

/// What the answer to a write shall show: large items cost time on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "for the tables of this repository")]
pub enum Show {
    Nothing,
    RefusedItem,
    Item,
}

/// One page of a listing, and where the next one begins.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "for the tables of this repository")]
pub struct Page {
    pub items: Vec<RawItem>,
    pub next: Option<RawItem>,
}

impl Requests {
    /// Waits for each answer no longer than `limit`, the SDK's retries included.
    pub fn new(client: Client, table: Table, limit: Duration) -> Self {
        Self { client, table, limit }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn table(&self) -> &str {
        &self.table.name
    }

    /// Changes an item, or makes it.
    pub async fn update(
        &self,
        key: &str,
        write: Written,
        show: Show,
    ) -> Result<Outcome, StoreError> {
        let Written { update, condition, names, values } = write;
        let request = self
            .client
            .update_item()
            .table_name(&self.table.name)
            .key(&self.table.key, key.into_value())
            .set_update_expression(Some(update).filter(|update| !update.is_empty()))
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(values))
            // Nothing is shown where nothing is said.
            .set_return_values(match show {
                Show::Item => Some(ReturnValue::AllNew),
                Show::Nothing | Show::RefusedItem => None,
            })
            .set_return_values_on_condition_check_failure(match show {
                Show::Nothing => None,
                Show::RefusedItem | Show::Item => Some(OnRefusal::AllOld),
            });
        let answer = self.within("UpdateItem", request.send()).await?;
        self.outcome("UpdateItem", answer.map(|answer| answer.attributes), |error| match error {
            UpdateItemError::ConditionalCheckFailedException(refusal) => Some(refusal),
            _ => None,
        })
    }

    /// Replaces the whole item, or makes it. What `condition` would change is left out.
    pub async fn put(
        &self,
        key: &str,
        mut item: RawItem,
        condition: Written,
    ) -> Result<Outcome, StoreError> {
        item.insert(self.table.key.clone(), key.into_value());
        let request = self
            .client
            .put_item()
            .table_name(&self.table.name)
            .set_item(Some(item))
            .condition_expression(condition.condition)
            .set_expression_attribute_names(Some(condition.names))
            // Of none, an empty map would be refused.
            .set_expression_attribute_values(Some(condition.values).filter(|v| !v.is_empty()))
            .return_values_on_condition_check_failure(OnRefusal::AllOld);
        let answer = self.within("PutItem", request.send()).await?;
        self.outcome("PutItem", answer.map(|_| None), |error| match error {
            PutItemError::ConditionalCheckFailedException(refusal) => Some(refusal),
            _ => None,
        })
    }

    /// Removes an item. What `condition` would change is left out.
    pub async fn delete(&self, key: &str, condition: Written) -> Result<Outcome, StoreError> {
        let request = self
            .client
            .delete_item()
            .table_name(&self.table.name)
            .key(&self.table.key, key.into_value())
            .condition_expression(condition.condition)
            .set_expression_attribute_names(Some(condition.names))
            .set_expression_attribute_values(Some(condition.values))
            .return_values_on_condition_check_failure(OnRefusal::AllOld);
        let answer = self.within("DeleteItem", request.send()).await?;
        self.outcome("DeleteItem", answer.map(|_| None), |error| match error {
            DeleteItemError::ConditionalCheckFailedException(refusal) => Some(refusal),
            _ => None,
        })
    }

    /// Reads an item, strongly consistent.
    pub async fn get(&self, key: &str) -> Result<Option<RawItem>, StoreError> {
        let request = self
            .client
            .get_item()
            .table_name(&self.table.name)
            .key(&self.table.key, key.into_value())
            .consistent_read(true);
        match self.within("GetItem", request.send()).await? {
            Ok(answer) => Ok(answer.item),
            Err(error) => Err(self.failed("GetItem", error)),
        }
    }

    /// Reads the page of all items that begins at `start`.
    pub async fn scan(
        &self,
        prefix: &str,
        start: Option<RawItem>,
        consistent: bool,
    ) -> Result<Page, StoreError> {
        let mut request = self
            .client
            .scan()
            .table_name(&self.table.name)
            .consistent_read(consistent)
            .set_exclusive_start_key(start);
        if !prefix.is_empty() {
            request = request
                .filter_expression("begins_with(#key, :prefix)")
                .expression_attribute_names("#key", &self.table.key)
                .expression_attribute_values(":prefix", prefix.into_value());
        }
        match self.within("Scan", request.send()).await? {
            Ok(answer) => Ok(Page {
                items: answer.items.unwrap_or_default(),
                next: answer.last_evaluated_key.filter(|key| !key.is_empty()),
            }),
            Err(error) => Err(self.failed("Scan", error)),
        }
    }

    /// Waits for an answer for as long as the table may.
    pub async fn within<T, E: ProvideErrorMetadata>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send,
    ) -> Result<Result<T, SdkError<E, HttpResponse>>, StoreError> {
        // On the heap: the SDK's futures are large, and they lie within ours.
        match tokio::time::timeout(self.limit, Box::pin(request)).await {
            Ok(answer) => Ok(answer),
            Err(_elapsed) => Err(timed_out(operation, &self.table.name, self.limit)),
        }
    }

    /// What is told of an answer that is an error.
    pub fn failed<E>(&self, operation: &'static str, error: SdkError<E, HttpResponse>) -> StoreError
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        failed(operation, &self.table, error)
    }

    /// Tells a refusal, which is an answer, from an error.
    fn outcome<E>(
        &self,
        operation: &'static str,
        answer: Result<Option<RawItem>, SdkError<E, HttpResponse>>,
        refusal: impl FnOnce(&E) -> Option<&Refusal>,
    ) -> Result<Outcome, StoreError>
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        match answer {
            Ok(item) => Ok(Outcome::Applied(item.unwrap_or_default())),
            Err(error) => match error.as_service_error().and_then(refusal) {
                Some(refusal) => Ok(Outcome::Refused(refusal.item.clone())),
                None => Err(self.failed(operation, error)),
            },
        }
    }
}
