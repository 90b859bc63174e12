//! The clients of AWS and the lease table.
//!
//! Start reading at [`clients`], which creates the clients of Kinesis and DynamoDB. [`table`] opens the
//! lease table, and [`patience`] repeats this while DynamoDB does not answer. [`profiles`] reports why a profile file was not read.

pub(crate) mod clients;
mod patience;
#[cfg(feature = "aws")]
mod profiles;
pub(crate) mod table;
