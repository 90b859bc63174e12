//! Sessions on live servers. Start with [`items`], which shows the items of a session and its children.
//! [`conditions`] has one control per condition of a session's writes.

mod conditions;
mod items;
mod observing;
mod reading;

use std::time::Duration;

use lease_core::store::{
    Claim, Grant, LeaseRecord, LockStore, Parent, SessionState, Sessions, Vacancy,
};
use lease_core::{LeaseKey, StoreError};
use lease_dynamodb::DynamoDbStore;
use lease_test_servers::claims::{claim, granted};

use crate::setup::LONG;

fn sessions(store: &DynamoDbStore) -> &dyn Sessions {
    store.sessions().unwrap()
}

async fn record(store: &DynamoDbStore, key: &LeaseKey) -> Option<LeaseRecord> {
    let answer = sessions(store).read_all(std::slice::from_ref(key)).await.pop();
    answer.unwrap().unwrap()
}

async fn vacancy(store: &DynamoDbStore, key: &LeaseKey) -> Vacancy {
    let record = record(store, key).await;
    Vacancy::seen(key, record.as_ref(), &"a".parse().unwrap(), None).unwrap()
}

async fn child(store: &DynamoDbStore, key: &LeaseKey, session: &Grant) -> Grant {
    let vacancy = vacancy(store, key).await;
    let claim = child_claim(key, session);
    granted(sessions(store).obtain_under(&claim, &vacancy).await.unwrap()).0
}

fn child_claim(key: &LeaseKey, session: &Grant) -> Claim {
    claim(key, "a", LONG).under(Parent::from(session))
}

async fn end(store: &DynamoDbStore, session: &Parent) -> Result<SessionState, StoreError> {
    sessions(store).end_session(session).await
}

const TTL: Duration = Duration::from_secs(10);
