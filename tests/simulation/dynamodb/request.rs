//! A parsed request: its operation, key and condition.

use std::time::Duration;

use lease_core::conformance::Call;
use lease_core::store::{Claim, Grant, Nonce};
use lease_core::{FencingToken, LeaseKey};
use serde_json::Value;

use lease_test_servers::simulation::expression::{Bindings, Condition, Item, Refusal, Update};

#[derive(Debug, Clone)]
pub(crate) enum Request {
    Write(Write),
    Get { key: String, consistent: bool },
    Scan { filter: Option<Condition>, bound: Bindings, start: Option<String> },
}

#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) key: String,
    pub(crate) condition: Condition,
    pub(crate) change: Change,
    pub(crate) bound: Bindings,
    pub(crate) shows_new: bool,
    pub(crate) shows_refused: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Change {
    Update(Update),
    Put(Item),
}

pub(crate) const KEY: &str = "lease_key";

impl Request {
    pub(crate) fn parse(operation: &str, body: &Value) -> Result<Self, Refusal> {
        let bound = Bindings::new(
            object(body, "ExpressionAttributeNames"),
            object(body, "ExpressionAttributeValues"),
        );
        match operation {
            "UpdateItem" => {
                let update = text(body, "UpdateExpression")
                    .map_or_else(|| Ok(Update::default()), Update::parse)?;
                let key = key_of(&object(body, "Key"))?;
                Write::parse(key, Change::Update(update), bound, body).map(Self::Write)
            }
            "PutItem" => {
                let item = object(body, "Item");
                let key = key_of(&item)?;
                Write::parse(key, Change::Put(item), bound, body).map(Self::Write)
            }
            "GetItem" => {
                let consistent = body.get("ConsistentRead") == Some(&Value::Bool(true));
                Ok(Self::Get { key: key_of(&object(body, "Key"))?, consistent })
            }
            "Scan" => {
                let filter = text(body, "FilterExpression").map(Condition::parse).transpose()?;
                bound.are_used(filter.as_ref(), None)?;
                let start = match object(body, "ExclusiveStartKey") {
                    key if key.is_empty() => None,
                    key => Some(key_of(&key)?),
                };
                Ok(Self::Scan { filter, bound, start })
            }
            _ => Err(format!("{operation} is not known here")),
        }
    }

    pub(crate) fn call(&self) -> Call {
        match self {
            Self::Write(write) => write.call(),
            Self::Get { .. } | Self::Scan { .. } => Call::Read,
        }
    }

    pub(crate) fn nonce(&self) -> Option<&Value> {
        match self {
            Self::Write(write) => write.bound.values.get(":nonce"),
            Self::Get { .. } | Self::Scan { .. } => None,
        }
    }

    pub(crate) fn user_write(&self) -> Option<Grant> {
        match self {
            Self::Write(write) => write.user_write_under(),
            Self::Get { .. } | Self::Scan { .. } => None,
        }
    }
}

impl Write {
    fn parse(key: String, change: Change, bound: Bindings, body: &Value) -> Result<Self, Refusal> {
        let condition =
            text(body, "ConditionExpression").map_or(Ok(Condition::Always), Condition::parse)?;
        let update = match &change {
            Change::Update(update) => Some(update),
            Change::Put(_) => None,
        };
        bound.are_used(Some(&condition), update)?;
        Ok(Self {
            key,
            condition,
            change,
            bound,
            shows_new: text(body, "ReturnValues") == Some("ALL_NEW"),
            shows_refused: text(body, "ReturnValuesOnConditionCheckFailure") == Some("ALL_OLD"),
        })
    }

    pub(crate) fn call(&self) -> Call {
        let Change::Update(update) = &self.change else { return Call::Write };
        if update.sets("nonce") {
            let adopts = self.bound.values.contains_key(":handed");
            return if adopts { Call::Adopt } else { Call::Obtain };
        }
        if update.sets("beat") && self.bound.values.contains_key(":beat") {
            return Call::Heartbeat;
        }
        if update.sets("former") && !update.sets("offered_to") && !self.ends_a_session() {
            return Call::Release;
        }
        Call::Write
    }

    pub(crate) fn claims_under_a_session(&self) -> bool {
        self.call() == Call::Obtain && self.bound.values.contains_key(":parent")
    }

    /// The end of a session takes the former lessee from the item itself.
    fn ends_a_session(&self) -> bool {
        let Change::Update(update) = &self.change else { return false };
        update.sets("former") && !self.bound.values.contains_key(":lessee")
    }

    pub(crate) fn user_write_under(&self) -> Option<Grant> {
        let Change::Update(update) = &self.change else { return None };
        update.sets("#payload0").then(|| self.grant(&self.bound.values, ":")).flatten()
    }

    pub(crate) fn grant_shown_by(&self, item: &Item) -> Option<Grant> {
        self.grant(item, "")
    }

    fn grant(&self, fields: &Item, prefix: &str) -> Option<Grant> {
        let field = |name: &str, kind: &str| {
            fields.get(&format!("{prefix}{name}"))?.get(kind)?.as_str().map(str::to_owned)
        };
        let key: LeaseKey = self.key.parse().ok()?;
        let lessee = field("lessee", "S")?.parse().ok()?;
        let nonce = Nonce::new(field("nonce", "S")?.parse().ok()?);
        let token = FencingToken::new(field("token", "N")?.parse().ok()?).ok()?;
        // A write's request has no ttl, and no caller needs the ttl of its grant.
        let ttl = field("ttl_ms", "N").and_then(|ttl| ttl.parse().ok()).unwrap_or_default();
        Some(Claim::new(key, lessee, nonce, Duration::from_millis(ttl)).granted(token))
    }
}

fn key_of(item: &Item) -> Result<String, Refusal> {
    let key = item.get(KEY).and_then(|key| key.get("S")).and_then(Value::as_str);
    key.map(str::to_owned).ok_or_else(|| "the key does not match the schema".to_owned())
}

fn object(body: &Value, field: &str) -> Item {
    body.get(field).and_then(Value::as_object).cloned().unwrap_or_default()
}

fn text<'a>(body: &'a Value, field: &str) -> Option<&'a str> {
    body.get(field).and_then(Value::as_str)
}
