//! What a table of leases in DynamoDB is made of, whatever its rows look like.
//!
//! For the tables of this repository: [`DynamoDbStore`](crate::DynamoDbStore)'s, and that of the
//! Kinesis Client Library in `lease-kinesis`. It may change with every release, so they ask for the
//! one that they were released with.

mod error;
mod expression;
mod observe;
mod request;
mod schema;
mod timing;
mod value;

pub use error::{Advice, corrupt, told};
pub use expression::{Expression, IntoValue, Written};
pub use observe::{Observations, Watched};
pub use request::{Outcome, Page, RawItem, Requests, Show, Table};
pub use timing::Timing;
pub use value::{MAX_ITEM_BYTES, bytes_of, from_dynamodb, to_dynamodb};
