//! DynamoDB's own time.
//!
//! Start with `server_time`, which computes bounds of DynamoDB's time from the dates of its
//! answers. `date_interceptor` reads these dates.

mod date_interceptor;
mod server_time;

pub(crate) use date_interceptor::DateInterceptor;
pub(crate) use server_time::{ServerNow, ServerTime, Timestamp};
