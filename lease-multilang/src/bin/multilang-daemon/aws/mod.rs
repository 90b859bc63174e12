//! The clients of AWS and the lease table.
//!
//! Start reading at [`clients`], which creates the clients of Kinesis and DynamoDB. [`table`] opens the
//! lease table, and [`patience`] repeats this while DynamoDB or the service of the [`credentials`] does not answer.
//! [`profiles`] reports why a profile file was not read.

pub(crate) mod clients;
mod credentials;
mod patience;
mod profiles;
pub(crate) mod table;
