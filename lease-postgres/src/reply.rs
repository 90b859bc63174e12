//! Reads the rows of answers. Another program may have written invalid values.

use std::time::Duration;

use lease_core::store::{LastGrant, LeaseRecord, Parent, RequestNumber, Reserved};
use lease_core::{Attributes, FencingToken, Holder, LeaseKey, Lessee};
use tokio_postgres::Row;
use tokio_postgres::types::FromSqlOwned;

use crate::attributes;
use crate::error::ServerFault;

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) verdict: String,
    token: Option<i64>,
    request: Option<i64>,
    lessee: Option<String>,
    /// The microseconds until the lease or the reservation ends. `None` if the lease ends with its session.
    remaining: Option<i64>,
    attributes: Option<String>,
    parent: Option<String>,
    parent_token: Option<i64>,
}

impl Reply {
    pub(crate) fn read(row: &Row) -> Result<Self, ServerFault> {
        Ok(Self {
            verdict: column(row, "verdict")?,
            token: column(row, "token")?,
            request: column(row, "request")?,
            lessee: column(row, "lessee")?,
            remaining: column(row, "remaining")?,
            attributes: column(row, "attributes")?,
            parent: column(row, "parent")?,
            parent_token: column(row, "parent_token")?,
        })
    }

    pub(crate) fn last_token(&self, key: &str) -> Result<Option<FencingToken>, ServerFault> {
        self.token.map(|_| self.token(key)).transpose()
    }

    pub(crate) fn token(&self, key: &str) -> Result<FencingToken, ServerFault> {
        token(self.token, key)
    }

    pub(crate) fn request(&self) -> Option<RequestNumber> {
        self.request.and_then(|number| u64::try_from(number).ok()).map(RequestNumber::new)
    }

    /// `None` if the lease ends with its session.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        self.remaining.map(micros)
    }

    pub(crate) fn attributes(&self, key: &str) -> Result<Attributes, ServerFault> {
        attributes(self.attributes.as_deref(), key)
    }

    pub(crate) fn holder(&self, key: &str) -> Result<Holder, ServerFault> {
        let holder = match self.remaining {
            Some(left) => Holder::new(self.lessee(key)?, Some(micros(left))),
            None => Holder::new(self.lessee(key)?, None).with_parent(Some(self.parent(key)?)),
        };
        Ok(holder.named_by(self.token(key)?))
    }

    /// The lessee for which the key is reserved, or else the lessee of the last grant.
    pub(crate) fn former_holder(&self, key: &str) -> Result<Holder, ServerFault> {
        if self.remaining.is_none() {
            return self.holder(key);
        }
        self.last_holder(key)
    }

    /// The lessee of the last grant. A row without a grant has no token.
    pub(crate) fn last_holder(&self, key: &str) -> Result<Holder, ServerFault> {
        let left = self.remaining.map_or(Duration::ZERO, micros);
        let holder = Holder::new(self.lessee(key)?, Some(left));
        Ok(match self.last_token(key)? {
            Some(token) => holder.with_token(token),
            None => holder,
        })
    }

    fn parent(&self, key: &str) -> Result<Parent, ServerFault> {
        let session = self.parent.as_deref().and_then(|session| LeaseKey::new(session).ok());
        let session = session.ok_or_else(|| odd(key, "parent"))?;
        Ok(Parent::new(
            session,
            number_of(self.parent_token).ok_or_else(|| odd(key, "parent_token"))?,
        ))
    }

    fn lessee(&self, key: &str) -> Result<Lessee, ServerFault> {
        let lessee = self.lessee.as_deref().and_then(|lessee| Lessee::new(lessee).ok());
        lessee.ok_or_else(|| odd(key, "lessee"))
    }
}

pub(crate) fn read_granted(
    row: &Row,
    key: &str,
) -> Result<(FencingToken, Attributes), ServerFault> {
    let text: Option<String> = column(row, "attributes")?;
    Ok((token(column(row, "token")?, key)?, attributes(text.as_deref(), key)?))
}

/// Returns `None` if the key is free and has no record.
pub(crate) fn record(key: LeaseKey, row: &Row) -> Result<Option<LeaseRecord>, ServerFault> {
    let (name, reply) = (key.as_str(), Reply::read(row)?);
    let holder = match reply.verdict.as_str() {
        "held" => Some(reply.holder(name)?),
        "free" => None,
        _ => return Ok(None),
    };
    let (token, attributes) = (reply.last_token(name)?, reply.attributes(name)?);
    let last_grant = if column(row, "ended")? { LastGrant::Ended } else { LastGrant::Open };
    let only: Option<String> = column(row, "only_for")?;
    let only = only.map(Lessee::new).transpose().map_err(|_invalid| odd(name, "only_for"))?;
    let left: Option<i64> = column(row, "reserved")?;
    let reserved = left.map(|left| Reserved::new(only, micros(left)));
    let record = LeaseRecord::new(key, holder, token, attributes);
    Ok(Some(record.with_end(last_grant, reserved)))
}

fn token(number: Option<i64>, key: &str) -> Result<FencingToken, ServerFault> {
    number_of(number).ok_or_else(|| odd(key, "token"))
}

fn number_of(token: Option<i64>) -> Option<FencingToken> {
    token.and_then(|token| FencingToken::new(u64::try_from(token).ok()?).ok())
}

/// Zero if the lease or the reservation has ended.
fn micros(left: i64) -> Duration {
    Duration::from_micros(u64::try_from(left).unwrap_or(0))
}

fn attributes(text: Option<&str>, key: &str) -> Result<Attributes, ServerFault> {
    text.and_then(attributes::read).ok_or_else(|| odd(key, "attributes"))
}

pub(crate) fn key(row: &Row) -> Result<LeaseKey, ServerFault> {
    let text: String = column(row, "key")?;
    LeaseKey::new(text.as_str()).map_err(|error| {
        ServerFault::corrupt(format!("{error}: another program writes to the table of leases"))
    })
}

pub(crate) fn column<T: FromSqlOwned>(row: &Row, name: &str) -> Result<T, ServerFault> {
    row.try_get(name).map_err(|_| {
        let sentence = format!("column {name:?} has another type: the table was changed");
        ServerFault::corrupt(sentence)
    })
}

pub(crate) fn odd(key: &str, name: &str) -> ServerFault {
    ServerFault::corrupt(format!(
        "row {key:?} cannot be read because of its column {name:?}: another program writes to the \
         table of leases; delete the row to free the key"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn invalid_values_give_an_error_and_no_panic(
            token in any::<Option<i64>>(),
            request in any::<Option<i64>>(),
            lessee in any::<Option<String>>(),
            remaining in any::<Option<i64>>(),
            attributes in any::<Option<String>>(),
            parent in any::<Option<String>>(),
            parent_token in any::<Option<i64>>(),
        ) {
            let is_number = |token: Option<i64>| token.is_some_and(|token| (0..1 << 53).contains(&token));
            let is_token = is_number(token);
            let is_parent = is_number(parent_token)
                && parent.as_deref().is_some_and(|session| LeaseKey::new(session).is_ok());
            let is_lessee = lessee.as_deref().is_some_and(|lessee| Lessee::new(lessee).is_ok());
            let verdict = "held".to_owned();
            let reply = Reply {
                verdict, token, request, lessee, remaining, attributes, parent, parent_token,
            };

            prop_assert_eq!(reply.token("job").is_ok(), is_token);
            prop_assert_eq!(
                reply.holder("job").is_ok(),
                is_token && is_lessee && (remaining.is_some() || is_parent)
            );
            drop(reply.attributes("job"));
            drop(reply.former_holder("job"));
            drop(reply.last_token("job"));
            let _ = reply.request();
        }
    }
}
