//! Reads many items with few requests.

use std::collections::{BTreeSet, HashMap};

use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes};
use lease_core::{StoreError, StoreErrorKind};

use super::client::{RawItem, TableClient};
use super::error::store_error;
use super::expression::IntoValue;

struct Answer {
    items: Vec<RawItem>,
    left: BTreeSet<String>,
}

/// `None` means that the key has no item.
type Read = Result<Option<RawItem>, Failure>;

#[derive(Clone)]
struct Failure {
    kind: StoreErrorKind,
    text: String,
}

impl TableClient {
    /// Reads items in batches, with eventual consistency, at half the cost of [`get`](Self::get). The answers
    /// are in the order of `keys`.
    pub async fn get_all(&self, keys: &[&str]) -> Vec<Result<Option<RawItem>, StoreError>> {
        // DynamoDB refuses a batch that names a key twice.
        let unique: BTreeSet<&str> = keys.iter().copied().collect();
        let unique: Vec<&str> = unique.into_iter().collect();
        let mut reads = HashMap::new();
        for batch in unique.chunks(MAX_KEYS) {
            self.get_batch(batch.to_vec(), &mut reads).await;
        }
        let read = |key: &&str| match reads.get(*key) {
            Some(Ok(item)) => Ok(item.clone()),
            Some(Err(Failure { kind, text })) => Err(store_error(*kind, text.as_str())),
            None => Ok(None),
        };
        keys.iter().map(read).collect()
    }

    /// DynamoDB may leave keys unprocessed, for example if the items exceed 16 MB. The client requests these
    /// keys again. If an answer processes none of the requested keys, these keys fail as throttled.
    async fn get_batch(&self, mut keys: Vec<&str>, reads: &mut HashMap<String, Read>) {
        while !keys.is_empty() {
            let failure = match self.ask_for(&keys).await {
                Ok(answer) if answer.left.len() < keys.len() => {
                    for item in answer.items {
                        if let Some(AttributeValue::S(key)) = item.get(&self.table.key) {
                            reads.insert(key.clone(), Ok(Some(item)));
                        }
                    }
                    keys.retain(|key| answer.left.contains(*key));
                    continue;
                }
                Ok(_nothing) => Failure {
                    kind: StoreErrorKind::Throttled,
                    text: format!(
                        "BatchGetItem on table {}: throttled: give the table more capacity, or bill it on demand",
                        self.table.name
                    ),
                },
                Err(error) => Failure { kind: error.kind(), text: cause_of(&error) },
            };
            for key in keys.drain(..) {
                reads.insert(key.to_owned(), Err(failure.clone()));
            }
        }
    }

    async fn ask_for(&self, keys: &[&str]) -> Result<Answer, StoreError> {
        let column = &self.table.key;
        let key = |key: &&str| HashMap::from([(column.clone(), key.into_value())]);
        let keys = KeysAndAttributes::builder().set_keys(Some(keys.iter().map(key).collect()));
        let keys = keys.build().map_err(|error| {
            store_error(StoreErrorKind::Misconfigured, format!("BatchGetItem: {error}"))
        })?;
        let request = self.sdk.batch_get_item().request_items(&self.table.name, keys);
        let answer = match self.with_time_limit("BatchGetItem", request.send()).await? {
            Ok(answer) => answer,
            Err(error) => return Err(self.request_error("BatchGetItem", error)),
        };
        let left = answer.unprocessed_keys.unwrap_or_default().into_values();
        let left = left.flat_map(|left| left.keys).filter_map(|mut key| key.remove(column));
        let left = left.filter_map(|key| match key {
            AttributeValue::S(key) => Some(key),
            _ => None,
        });
        let items = answer.responses.unwrap_or_default().into_values().flatten().collect();
        Ok(Answer { items, left: left.collect() })
    }
}

fn cause_of(error: &StoreError) -> String {
    let mut texts = Vec::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts.join(": ")
}

/// <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html>
const MAX_KEYS: usize = 100;
