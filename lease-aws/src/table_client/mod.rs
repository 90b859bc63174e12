//! Requests to one DynamoDB table of leases. Each store defines the columns of its table itself.
//!
//! Start with [`TableClient`], which sends the requests. [`Expression`] builds a conditional write, and
//! [`Observations`] remembers how long each item has been unchanged.

mod batch;
mod client;
mod error;
mod expression;
mod observation;
mod schema;
mod table;
mod timing;
mod value;

pub use client::{Page, RawItem, ReturnItem, TableClient, WriteOutcome};
pub use error::{corrupt_column, store_error};
pub use expression::{ColumnName, Expression, IntoValue, Payload, RenderedExpression};
pub use observation::{Observation, Observations};
pub use table::{Advice, Table};
pub use timing::Timing;
pub use value::{MAX_ITEM_BYTES, attribute_bytes, from_dynamodb, to_dynamodb};
