//! Sends requests to one DynamoDB table, each with a time limit.

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

use super::error::{request_error, timed_out};
use super::expression::{IntoValue, RenderedExpression};
use super::table::Table;

/// An item in DynamoDB's types.
pub type RawItem = HashMap<String, AttributeValue>;

/// Sends requests to one table.
#[derive(Debug)]
pub struct TableClient {
    pub(super) sdk: Client,
    pub(super) table: Table,
    limit: Duration,
}

/// The outcome of a conditional write.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a condition is true or false")]
pub enum WriteOutcome {
    /// DynamoDB applied the write. Contains the new item, if the request asked for it.
    Applied(RawItem),
    /// The condition was false. Contains the item, if the request asked for it and the item exists.
    Refused(Option<RawItem>),
}

/// Whether the answer to a write contains the item. Large items make answers slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "for the crates of this repository")]
pub enum ReturnItem {
    /// The answer never contains the item.
    Never,
    /// If the condition was false, the answer contains the current item.
    IfRefused,
    /// The answer contains the new item, or the current item if the condition was false.
    Always,
}

/// One page of a listing.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "for the crates of this repository")]
pub struct Page {
    /// The items of the page.
    pub items: Vec<RawItem>,
    /// The start of the next page. `None` after the last page.
    pub next: Option<RawItem>,
}

impl TableClient {
    /// Creates a client that waits for each answer for at most `limit`, the SDK's retries included.
    pub fn new(sdk: Client, table: Table, limit: Duration) -> Self {
        Self { sdk, table, limit }
    }

    /// Returns the SDK's client.
    pub fn sdk(&self) -> &Client {
        &self.sdk
    }

    /// Returns the table's name.
    pub fn name(&self) -> &str {
        &self.table.name
    }

    /// Changes an item, or creates it.
    ///
    /// # Errors
    ///
    /// If the outcome of the write is unknown, or DynamoDB rejects the request.
    pub async fn update(
        &self,
        key: &str,
        write: RenderedExpression,
        returned: ReturnItem,
    ) -> Result<WriteOutcome, StoreError> {
        let RenderedExpression { update, condition, names, values } = write;
        let request = self
            .sdk
            .update_item()
            .table_name(&self.table.name)
            .key(&self.table.key, key.into_value())
            .set_update_expression(Some(update).filter(|update| !update.is_empty()))
            .condition_expression(condition)
            // DynamoDB refuses an empty map.
            .set_expression_attribute_names(Some(names).filter(|names| !names.is_empty()))
            .set_expression_attribute_values(Some(values).filter(|values| !values.is_empty()))
            .set_return_values(match returned {
                ReturnItem::Always => Some(ReturnValue::AllNew),
                ReturnItem::Never | ReturnItem::IfRefused => None,
            })
            .set_return_values_on_condition_check_failure(match returned {
                ReturnItem::Never => None,
                ReturnItem::IfRefused | ReturnItem::Always => Some(OnRefusal::AllOld),
            });
        let answer = self.with_time_limit("UpdateItem", request.send()).await?;
        self.outcome("UpdateItem", answer.map(|answer| answer.attributes), |error| match error {
            UpdateItemError::ConditionalCheckFailedException(refusal) => Some(refusal),
            _ => None,
        })
    }

    /// Replaces the whole item, or creates it. Ignores the update of the expression `condition`.
    ///
    /// # Errors
    ///
    /// If the outcome of the write is unknown, or DynamoDB rejects the request.
    pub async fn put(
        &self,
        key: &str,
        mut item: RawItem,
        condition: RenderedExpression,
    ) -> Result<WriteOutcome, StoreError> {
        item.insert(self.table.key.clone(), key.into_value());
        let request = self
            .sdk
            .put_item()
            .table_name(&self.table.name)
            .set_item(Some(item))
            .condition_expression(condition.condition)
            .set_expression_attribute_names(Some(condition.names).filter(|n| !n.is_empty()))
            .set_expression_attribute_values(Some(condition.values).filter(|v| !v.is_empty()))
            .return_values_on_condition_check_failure(OnRefusal::AllOld);
        let answer = self.with_time_limit("PutItem", request.send()).await?;
        self.outcome("PutItem", answer.map(|_| None), |error| match error {
            PutItemError::ConditionalCheckFailedException(refusal) => Some(refusal),
            _ => None,
        })
    }

    /// Deletes an item. Ignores the update of the expression `condition`.
    ///
    /// # Errors
    ///
    /// If the outcome of the write is unknown, or DynamoDB rejects the request.
    pub async fn delete(
        &self,
        key: &str,
        condition: RenderedExpression,
    ) -> Result<WriteOutcome, StoreError> {
        let request = self
            .sdk
            .delete_item()
            .table_name(&self.table.name)
            .key(&self.table.key, key.into_value())
            .condition_expression(condition.condition)
            .set_expression_attribute_names(Some(condition.names).filter(|n| !n.is_empty()))
            .set_expression_attribute_values(Some(condition.values).filter(|v| !v.is_empty()))
            .return_values_on_condition_check_failure(OnRefusal::AllOld);
        let answer = self.with_time_limit("DeleteItem", request.send()).await?;
        self.outcome("DeleteItem", answer.map(|_| None), |error| match error {
            DeleteItemError::ConditionalCheckFailedException(refusal) => Some(refusal),
            _ => None,
        })
    }

    /// Reads an item with strong consistency.
    ///
    /// # Errors
    ///
    /// If no answer arrives in time, or DynamoDB rejects the request.
    pub async fn get(&self, key: &str) -> Result<Option<RawItem>, StoreError> {
        let request = self
            .sdk
            .get_item()
            .table_name(&self.table.name)
            .key(&self.table.key, key.into_value())
            .consistent_read(true);
        match self.with_time_limit("GetItem", request.send()).await? {
            Ok(answer) => Ok(answer.item),
            Err(error) => Err(self.request_error("GetItem", error)),
        }
    }

    /// Reads one page of the items whose keys begin with `prefix`. Without a `start`, reads the first page.
    ///
    /// # Errors
    ///
    /// If no answer arrives in time, or DynamoDB rejects the request.
    pub async fn scan(
        &self,
        prefix: &str,
        start: Option<RawItem>,
        consistent: bool,
    ) -> Result<Page, StoreError> {
        let mut request = self
            .sdk
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
        match self.with_time_limit("Scan", request.send()).await? {
            Ok(answer) => Ok(Page {
                items: answer.items.unwrap_or_default(),
                next: answer.last_evaluated_key.filter(|key| !key.is_empty()),
            }),
            Err(error) => Err(self.request_error("Scan", error)),
        }
    }

    /// Waits for the answer to `request` within the client's time limit.
    ///
    /// # Errors
    ///
    /// If no answer arrives in time.
    pub async fn with_time_limit<T, E: ProvideErrorMetadata>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send,
    ) -> Result<Result<T, SdkError<E, HttpResponse>>, StoreError> {
        // Boxed, because the SDK's futures are large.
        match tokio::time::timeout(self.limit, Box::pin(request)).await {
            Ok(answer) => Ok(answer),
            Err(_elapsed) => Err(timed_out(operation, &self.table.name, self.limit)),
        }
    }

    /// Turns an error of the SDK into the store's error.
    pub fn request_error<E>(
        &self,
        operation: &'static str,
        error: SdkError<E, HttpResponse>,
    ) -> StoreError
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        request_error(operation, &self.table, error)
    }

    /// A false condition is an answer, not an error.
    fn outcome<E>(
        &self,
        operation: &'static str,
        answer: Result<Option<RawItem>, SdkError<E, HttpResponse>>,
        refusal: impl FnOnce(&E) -> Option<&Refusal>,
    ) -> Result<WriteOutcome, StoreError>
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        match answer {
            Ok(item) => Ok(WriteOutcome::Applied(item.unwrap_or_default())),
            Err(error) => match error.as_service_error().and_then(refusal) {
                Some(refusal) => Ok(WriteOutcome::Refused(refusal.item.clone())),
                None => Err(self.request_error(operation, error)),
            },
        }
    }
}
