//! Fencing: the receiver of a write refuses the writes of former holders.
//!
//! A process that was paused in the middle of a write may continue after its lease has ended. The
//! receiver of the write can refuse the write: the receiver stores the largest token, and refuses
//! smaller tokens. The check and the write must be one atomic step.
//!
//! In this process, use a [`Gate`]. Elsewhere, add one condition to the write.
//!
//! In SQL, the statement writes no row if the token is stale. The column is a `BIGINT`, because a token has
//! up to 53 bits. An absent row and a row without a token accept any token. `PostgreSQL` and `SQLite`:
//!
//! ```sql
//! CREATE TABLE report (id TEXT PRIMARY KEY, body TEXT, token BIGINT)
//! ```
//!
//! ```sql
//! INSERT INTO report (id, body, token) VALUES (:id, :body, :token)
//! ON CONFLICT (id) DO UPDATE SET body = excluded.body, token = excluded.token
//! WHERE report.token IS NULL OR report.token <= excluded.token
//! ```
//!
//! In any dialect of SQL, for rows that exist:
//!
//! ```sql
//! UPDATE report SET body = :body, token = :token
//! WHERE id = :id AND (token IS NULL OR token <= :token)
//! ```
//!
//! `DynamoDB`, as the condition of an `UpdateItem`:
//!
//! ```text
//! UpdateExpression:    SET body = :body, #token = :token
//! ConditionExpression: attribute_not_exists(#token) OR #token <= :token
//! ```
//!
//! Redis, as a script that returns 0 if the write was refused:
//!
//! ```lua
//! local largest = tonumber(redis.call('HGET', KEYS[1], 'token') or 0)
//! if tonumber(ARGV[1]) < largest then return 0 end
//! redis.call('HSET', KEYS[1], 'token', ARGV[1], 'body', ARGV[2])
//! return 1
//! ```

use parking_lot::{Mutex, MutexGuard};
use thiserror::Error;

use crate::token::FencingToken;

/// Guards data in this process: accepts a write whose token is at least the largest seen.
///
/// # Examples
///
/// ```
/// use lease_core::FencingToken;
/// use lease_core::fence::Gate;
///
/// let (former, current) = (FencingToken::new(7)?, FencingToken::new(8)?);
/// let report = Gate::new(String::new());
///
/// report.write(former, |body| body.push_str("draft"))?;
/// report.write(current, |body| body.push_str(", final"))?;
/// let refused = report.write(former, |body| body.clear()).unwrap_err();
///
/// assert_eq!(refused.to_string(), "token 7 is stale: 8 was seen before");
/// assert_eq!(report.into_inner(), "draft, final");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Gate<T = ()> {
    guarded: Mutex<Guarded<T>>,
}

#[derive(Debug, Default)]
struct Guarded<T> {
    largest: Option<FencingToken>,
    data: T,
}

/// A write was refused, because a larger token was seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("token {token} is stale: {largest} was seen before")]
#[non_exhaustive]
pub struct Stale {
    /// The token that was refused.
    pub token: FencingToken,
    /// The largest token seen.
    pub largest: FencingToken,
}

impl<T> Gate<T> {
    /// Guards `data`. The first write may have any token.
    pub fn new(data: T) -> Self {
        Self { guarded: Mutex::new(Guarded { largest: None, data }) }
    }

    /// Runs `write` on the data if `token` is at least the largest seen.
    ///
    /// `write` runs under a lock: a call of the gate within `write` would deadlock. If `write`
    /// panics, its changes so far remain, and later writes still work.
    ///
    /// # Errors
    ///
    /// If a larger token was seen before. `write` does not run then.
    pub fn write<R>(
        &self,
        token: FencingToken,
        write: impl FnOnce(&mut T) -> R,
    ) -> Result<R, Stale> {
        let mut guarded = self.guarded();
        if let Some(largest) = guarded.largest
            && token < largest
        {
            return Err(Stale { token, largest });
        }
        guarded.largest = Some(token);
        Ok(write(&mut guarded.data))
    }

    /// Reads the data, without a token.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.guarded().data)
    }

    /// The largest token seen; `None` before the first write.
    pub fn largest(&self) -> Option<FencingToken> {
        self.guarded().largest
    }

    /// Returns the data.
    pub fn into_inner(self) -> T {
        self.guarded.into_inner().data
    }

    fn guarded(&self) -> MutexGuard<'_, Guarded<T>> {
        self.guarded.lock()
    }
}
