//! Requests to one DynamoDB table of leases. Each store defines the columns of its table itself.
//!
//! `DynamoDbStore` and the lease tables of the Kinesis Client Library share this module. Start with
//! [`TableClient`], which sends the requests. [`Expression`] builds a conditional write.

mod batch;
mod client;
mod error;
mod expression;
mod schema;
mod table;
mod timing;
mod value;

pub use client::{Page, RawItem, ReturnItem, TableClient, WriteOutcome};
pub use error::{corrupt_column, store_error};
pub use expression::{ColumnName, Expression, IntoValue, Payload, RenderedExpression};
pub use table::{Advice, Table};
pub use timing::Timing;
pub use value::{MAX_ITEM_BYTES, attribute_bytes, from_dynamodb, to_dynamodb};
