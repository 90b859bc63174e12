//! Requests to one table: each within its time limit, each telling DynamoDB's time.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure as OnRefusal,
};
use lease_core::{LeaseKey, StoreError};

use crate::column::{Column, Columns};
use crate::dated::Dated;
use crate::error::{failed, timed_out};
use crate::expression::{Expression, Written, gather_names};
use crate::item::RawItem;
use crate::time::ServerTime;

#[derive(Debug)]
pub(crate) struct Requests {
    client: Client,
    table: String,
    key_column: String,
    limit: Duration,
}

/// What became of a conditional write.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The item after the write, where it was asked for.
    Applied(RawItem),
    /// The item that did not fulfil the condition, where it was asked for and there is one.
    Refused(Option<RawItem>),
}

/// What the answer to a write shall show: large items cost time on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    Nothing,
    RefusedItem,
    Item,
}

/// One page of a listing, and where the next one begins.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<RawItem>,
    pub(crate) next: Option<RawItem>,
}

impl Requests {
    pub(crate) fn new(
        client: &Client,
        table: String,
        columns: &Columns,
        limit: Duration,
        time: Arc<ServerTime>,
    ) -> Self {
        // The user's own client, connections included, and besides an ear for dates.
        let config = client.config().to_builder().interceptor(Dated(time)).build();
        Self {
            client: Client::from_conf(config),
            table,
            key_column: columns.name(Column::Key).to_owned(),
            limit,
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    pub(crate) async fn update(
        &self,
        key: &LeaseKey,
        expression: Expression,
        columns: &Columns,
        show: Show,
    ) -> Result<Outcome, StoreError> {
        let Written { update, condition, names, values } = expression.written(columns);
        let request = self
            .client
            .update_item()
            .table_name(&self.table)
            .key(&self.key_column, key_value(key))
            .set_update_expression(Some(update).filter(|update| !update.is_empty()))
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(values))
            .return_values(match show {
                Show::Item => ReturnValue::AllNew,
                Show::Nothing | Show::RefusedItem => ReturnValue::None,
            })
            .return_values_on_condition_check_failure(on_refusal(show));
        match self.within("UpdateItem", request.send()).await? {
            Ok(answer) => Ok(Outcome::Applied(answer.attributes.unwrap_or_default())),
            Err(SdkError::ServiceError(service))
                if service.err().is_conditional_check_failed_exception() =>
            {
                let UpdateItemError::ConditionalCheckFailedException(refusal) = service.into_err()
                else {
                    return Ok(Outcome::Refused(None));
                };
                Ok(Outcome::Refused(refusal.item))
            }
            Err(error) => Err(failed("UpdateItem", &self.table, error)),
        }
    }

    /// Replaces the whole item.
    pub(crate) async fn put(
        &self,
        key: &LeaseKey,
        mut item: RawItem,
        condition: &Expression,
        columns: &Columns,
    ) -> Result<Outcome, StoreError> {
        item.insert(self.key_column.clone(), key_value(key));
        let condition_text = condition.conditions.join(" AND ");
        let mut names = HashMap::new();
        gather_names(&condition_text, columns, &mut names);
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression(condition_text)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(condition.values().clone()))
            .return_values_on_condition_check_failure(OnRefusal::AllOld);
        match self.within("PutItem", request.send()).await? {
            Ok(_) => Ok(Outcome::Applied(RawItem::new())),
            Err(SdkError::ServiceError(service))
                if service.err().is_conditional_check_failed_exception() =>
            {
                let PutItemError::ConditionalCheckFailedException(refusal) = service.into_err()
                else {
                    return Ok(Outcome::Refused(None));
                };
                Ok(Outcome::Refused(refusal.item))
            }
            Err(error) => Err(failed("PutItem", &self.table, error)),
        }
    }

    /// Reads an item, strongly consistent.
    pub(crate) async fn get(&self, key: &LeaseKey) -> Result<Option<RawItem>, StoreError> {
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .key(&self.key_column, key_value(key))
            .consistent_read(true);
        match self.within("GetItem", request.send()).await? {
            Ok(answer) => Ok(answer.item),
            Err(error) => Err(failed("GetItem", &self.table, error)),
        }
    }

    /// Reads the page of all items that begins at `start`.
    pub(crate) async fn scan(
        &self,
        prefix: &str,
        start: Option<RawItem>,
        consistent: bool,
    ) -> Result<Page, StoreError> {
        let mut request = self
            .client
            .scan()
            .table_name(&self.table)
            .consistent_read(consistent)
            .set_exclusive_start_key(start);
        if !prefix.is_empty() {
            request = request
                .filter_expression("begins_with(#key, :prefix)")
                .expression_attribute_names("#key", &self.key_column)
                .expression_attribute_values(":prefix", AttributeValue::S(prefix.to_owned()));
        }
        match self.within("Scan", request.send()).await? {
            Ok(answer) => Ok(Page {
                items: answer.items.unwrap_or_default(),
                next: answer.last_evaluated_key.filter(|key| !key.is_empty()),
            }),
            Err(error) => Err(failed("Scan", &self.table, error)),
        }
    }

    /// Waits for an answer for as long as the store may, the SDK's retries included.
    pub(crate) async fn within<T, E>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send,
    ) -> Result<Result<T, SdkError<E, HttpResponse>>, StoreError>
    where
        E: ProvideErrorMetadata,
    {
        // On the heap: the SDK's futures are large, and they lie within ours.
        match tokio::time::timeout(self.limit, Box::pin(request)).await {
            Ok(answer) => Ok(answer),
            Err(_elapsed) => Err(timed_out(operation, &self.table, self.limit)),
        }
    }
}

fn key_value(key: &LeaseKey) -> AttributeValue {
    AttributeValue::S(key.as_str().to_owned())
}

fn on_refusal(show: Show) -> OnRefusal {
    match show {
        Show::Nothing => OnRefusal::None,
        Show::RefusedItem | Show::Item => OnRefusal::AllOld,
    }
}
