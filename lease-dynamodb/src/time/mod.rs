//! DynamoDB's own time. Start with `server_time`.

mod date_interceptor;
mod server_time;

pub(crate) use date_interceptor::DateInterceptor;
pub(crate) use server_time::{ServerNow, ServerTime, Timestamp};
