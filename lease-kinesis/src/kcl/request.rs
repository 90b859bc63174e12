//! Requests to one KCL table, each within its time limit.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure as OnRefusal,
};
use lease_core::{StoreError, StoreErrorKind};

use super::error::{failed, told};
use super::expression::{Expression, Written};
use super::row::LEASE_KEY;

/// An item as DynamoDB sends it.
pub(super) type RawRow = HashMap<String, AttributeValue>;

#[derive(Debug)]
pub(super) struct Requests {
    pub(super) client: Client,
    pub(super) table: String,
    pub(super) limit: Duration,
}

/// What became of a conditional write.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The row after the write.
    Applied(RawRow),
    /// The row that did not fulfil the condition, where the answer shows it.
    Refused(Option<RawRow>),
}

/// One page of a listing, and where the next one begins.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) rows: Vec<RawRow>,
    pub(super) next: Option<RawRow>,
}

impl Requests {
    pub(super) async fn update(
        &self,
        lease_key: &str,
        expression: Expression,
    ) -> Result<Outcome, StoreError> {
        let Written { update, condition, names, values } = expression.written();
        let request = self
            .client
            .update_item()
            .table_name(&self.table)
            .key(LEASE_KEY, text(lease_key))
            .update_expression(update)
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(values))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(OnRefusal::AllOld);
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

    /// Makes a row, if there is none; says whether it did.
    pub(super) async fn create(&self, row: RawRow) -> Result<bool, StoreError> {
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(row))
            .condition_expression("attribute_not_exists(#key)")
            .expression_attribute_names("#key", LEASE_KEY);
        match self.within("PutItem", request.send()).await? {
            Ok(_) => Ok(true),
            Err(SdkError::ServiceError(service))
                if service.err().is_conditional_check_failed_exception() =>
            {
                Ok(false)
            }
            Err(error) => Err(failed("PutItem", &self.table, error)),
        }
    }

    /// Removes a row, if it is as `condition` says; says whether it did.
    pub(super) async fn delete(
        &self,
        lease_key: &str,
        condition: Expression,
    ) -> Result<bool, StoreError> {
        let Written { condition, names, values, .. } = condition.written();
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .key(LEASE_KEY, text(lease_key))
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(values));
        match self.within("DeleteItem", request.send()).await? {
            Ok(_) => Ok(true),
            Err(SdkError::ServiceError(service))
                if service.err().is_conditional_check_failed_exception() =>
            {
                Ok(false)
            }
            Err(error) => Err(failed("DeleteItem", &self.table, error)),
        }
    }

    /// Reads a row, strongly consistent.
    pub(super) async fn get(&self, lease_key: &str) -> Result<Option<RawRow>, StoreError> {
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .key(LEASE_KEY, text(lease_key))
            .consistent_read(true);
        match self.within("GetItem", request.send()).await? {
            Ok(answer) => Ok(answer.item),
            Err(error) => Err(failed("GetItem", &self.table, error)),
        }
    }

    /// Reads the page of all rows that begins at `start`.
    pub(super) async fn scan(
        &self,
        prefix: &str,
        start: Option<RawRow>,
    ) -> Result<Page, StoreError> {
        let mut request = self.client.scan().table_name(&self.table).set_exclusive_start_key(start);
        if !prefix.is_empty() {
            request = request
                .filter_expression("begins_with(#key, :prefix)")
                .expression_attribute_names("#key", LEASE_KEY)
                .expression_attribute_values(":prefix", text(prefix));
        }
        match self.within("Scan", request.send()).await? {
            Ok(answer) => Ok(Page {
                rows: answer.items.unwrap_or_default(),
                next: answer.last_evaluated_key.filter(|key| !key.is_empty()),
            }),
            Err(error) => Err(failed("Scan", &self.table, error)),
        }
    }

    /// Waits for an answer for as long as the table may, the SDK's retries included.
    pub(super) async fn within<T, E: ProvideErrorMetadata>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send,
    ) -> Result<Result<T, SdkError<E, HttpResponse>>, StoreError> {
        // On the heap: the SDK's futures are large, and they lie within ours.
        let answer = tokio::time::timeout(self.limit, Box::pin(request)).await;
        answer.map_err(|_elapsed| {
            let (table, limit) = (&self.table, self.limit);
            let text = format!("{operation} on table {table}: no answer within {limit:?}");
            told(StoreErrorKind::Unavailable, text)
        })
    }
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}
