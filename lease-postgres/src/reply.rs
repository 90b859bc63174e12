//! Reads the rows of answers. Another program may have written invalid values.

use std::time::Duration;

use lease_core::store::RequestNumber;
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
    /// The microseconds until the lease or the reservation ends.
    remaining: Option<i64>,
    attributes: Option<String>,
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

    pub(crate) fn attributes(&self, key: &str) -> Result<Attributes, ServerFault> {
        attributes(self.attributes.as_deref(), key)
    }

    pub(crate) fn holder(&self, key: &str) -> Result<Holder, ServerFault> {
        let holder = Holder::new(self.lessee(key)?, Some(self.left(key)?));
        Ok(holder.named_by(self.token(key)?))
    }

    /// The lessee for which the key is reserved, or else the lessee of the last grant.
    pub(crate) fn former_holder(&self, key: &str) -> Result<Holder, ServerFault> {
        let holder = Holder::new(self.lessee(key)?, Some(self.left(key)?));
        Ok(holder.with_token(self.token(key)?))
    }

    fn left(&self, key: &str) -> Result<Duration, ServerFault> {
        let left = self.remaining.ok_or_else(|| odd(key, "ends"))?;
        // Negative if the lease or the reservation has ended.
        Ok(Duration::from_micros(u64::try_from(left).unwrap_or(0)))
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

fn token(number: Option<i64>, key: &str) -> Result<FencingToken, ServerFault> {
    let number = number.and_then(|token| u64::try_from(token).ok());
    let token = number.and_then(|number| FencingToken::new(number).ok());
    token.ok_or_else(|| odd(key, "token"))
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
        ) {
            let is_token = token.is_some_and(|token| (0..1 << 53).contains(&token));
            let is_lessee = lessee.as_deref().is_some_and(|lessee| Lessee::new(lessee).is_ok());
            let reply =
                Reply { verdict: "held".to_owned(), token, request, lessee, remaining, attributes };

            prop_assert_eq!(reply.token("job").is_ok(), is_token);
            prop_assert_eq!(
                reply.holder("job").is_ok(),
                is_token && is_lessee && remaining.is_some()
            );
            drop(reply.attributes("job"));
            drop(reply.former_holder("job"));
            drop(reply.last_token("job"));
            let _ = reply.request();
        }
    }
}
