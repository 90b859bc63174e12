//! Reads the `Date` header of every answer that the SDK receives.

use std::sync::Arc;

use aws_sdk_dynamodb::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use lease_core::store::{Moment, ServerClock};

/// Reports to a [`ServerClock`] the date of each answer, with the times of request and receipt.
#[derive(Debug)]
pub(crate) struct DateInterceptor(pub(crate) Arc<ServerClock>);

/// The time at which the current request was sent.
#[derive(Debug)]
struct SentAt(Moment);

impl Storable for SentAt {
    type Storer = StoreReplace<Self>;
}

impl Intercept for DateInterceptor {
    fn name(&self) -> &'static str {
        "lease-dynamodb: date of the answer"
    }

    // The SDK calls this for each retry, so each answer is paired with its own request.
    fn read_before_transmit(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let now = self.0.clock().now();
        bag.interceptor_state().store_put(SentAt(now));
        Ok(())
    }

    fn read_after_transmit(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let received = self.0.clock().now();
        let date = context
            .response()
            .headers()
            .get("date")
            .and_then(|date| DateTime::from_str(date, DateTimeFormat::HttpDate).ok())
            .and_then(|date| u64::try_from(date.secs()).ok());
        if let Some(sent) = bag.load::<SentAt>()
            && let Some(date) = date
        {
            self.0.add_answer(sent.0, received, date);
        }
        Ok(())
    }
}
