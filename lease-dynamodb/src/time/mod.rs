//! DynamoDB's own time: `date_interceptor` reads the dates of DynamoDB's answers.

mod date_interceptor;

pub(crate) use date_interceptor::DateInterceptor;
