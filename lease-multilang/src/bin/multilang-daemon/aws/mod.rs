//! What the daemon needs of AWS: its clients and the lease table.
//!
//! Start reading at [`clients`], which makes the clients of Kinesis and DynamoDB. [`table`] opens the
//! lease table. [`profiles`] explains why a profile file was not read.

pub(crate) mod clients;
#[cfg(feature = "aws")]
mod profiles;
pub(crate) mod table;
