//! The replies of scripts to claims and reads.

use redis::{FromRedisValue, Value};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Granted(u64),
    Again(u64),
    Held {
        /// The nonce is empty if the key has no holder.
        nonce: String,
        session: Option<u64>,
    },
}

impl Answer {
    pub(super) fn read(reply: Value) -> Self {
        let Value::Array(items) = reply else { panic!("{reply:?}") };
        let text = |place: usize| items.get(place).and_then(text_of);
        let number = |place: usize| text(place).and_then(|text| text.parse().ok());
        match text(0).as_deref() {
            Some("granted") => Self::Granted(number(1).unwrap()),
            Some("again") => Self::Again(number(1).unwrap()),
            Some("held") => Self::Held { nonce: text(4).unwrap(), session: number(6) },
            _ => panic!("{items:?}"),
        }
    }

    #[track_caller]
    pub(super) fn token(&self) -> u64 {
        let Self::Granted(token) = self else { panic!("{self:?}") };
        *token
    }

    pub(super) fn is_granted(&self) -> bool {
        matches!(self, Self::Granted(_))
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self, Self::Held { .. })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) is_held: bool,
    pub(super) session: Option<u64>,
    pub(super) token: Option<u64>,
    pub(super) has_ended: bool,
    /// The only lessee that may obtain the key. Empty for no lessee.
    pub(super) reserved: Option<String>,
}

impl Read {
    pub(super) fn of(reply: Value) -> Self {
        let Value::Array(items) = reply else { panic!("{reply:?}") };
        let [Value::Array(holder), token, _, ended, Value::Array(reserved)] = &items[..] else {
            panic!("{items:?}")
        };
        let number = |value: Option<&Value>| value.and_then(text_of)?.parse().ok();
        Self {
            is_held: holder.first().and_then(text_of).as_deref() == Some("held"),
            session: number(holder.get(6)),
            token: number(Some(token)),
            has_ended: *ended == Value::Int(1),
            reserved: reserved.first().and_then(text_of),
        }
    }
}

fn text_of(value: &Value) -> Option<String> {
    String::from_redis_value(value.clone()).ok()
}
