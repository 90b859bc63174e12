//! Buckets in Redis.

use std::ops::RangeInclusive;
use std::string::FromUtf8Error;

use async_trait::async_trait;
use lease_core::FencingToken;
use redis::Value;
use tracing::warn;

use crate::bucket::{
    AT_FIRST, Bucket, BucketOptions, BucketStore, ENTRY_BYTES, Entry, Piece, PutIn,
};
use crate::buffer::redis_words::{intake, stale, stopped, word};
use crate::buffer::{Fenced, Intake, StopCause};
use crate::error::ServiceError;
use crate::event::beginning;
use crate::redis::{RedisLink, key, script};

/// Keeps buckets in Redis. Each bucket is a hash `buckets:{NAME}:in:SECONDS` of keys and values,
/// with `=` before each value. `buckets:{NAME}:index` lists the buckets. `buckets:{NAME}:state` has
/// the marker, the last sealed bucket, the intake and the largest token.
///
/// All times are of the server's clock.
#[derive(Debug, Clone)]
pub struct RedisBuckets {
    link: RedisLink,
    options: BucketOptions,
    /// The index, the state, and the prefix of the buckets.
    keys: [String; 3],
}

impl RedisBuckets {
    /// Opens the buckets `name`. All processes that share these buckets must use the same
    /// `options`.
    pub fn new(link: RedisLink, name: &str, options: BucketOptions) -> Self {
        let keys = ["index", "state", "in:"].map(|part| key("buckets", name, part));
        Self { link, options, keys }
    }

    async fn run<T: redis::FromRedisValue>(
        &self,
        script: &redis::Script,
        arguments: &[&[u8]],
    ) -> Result<T, ServiceError> {
        let [index, state, buckets] = &self.keys;
        self.link.run(SERVICE, script, &[index, state, buckets], arguments).await
    }

    /// Returns the number of removed items.
    async fn run_under(
        &self,
        script: &redis::Script,
        token: FencingToken,
        further: &[&str],
    ) -> Result<Fenced<u64>, ServiceError> {
        let token = token.to_string();
        let mut arguments = vec![token.as_bytes()];
        arguments.extend(further.iter().map(|argument| argument.as_bytes()));
        match self.run(script, &arguments).await? {
            Value::Int(removed) => Ok(Fenced::Done(u64::try_from(removed).unwrap_or(0))),
            other => stale(&other),
        }
    }

    fn in_bucket(&self, bucket: Bucket) -> String {
        let [_, _, buckets] = &self.keys;
        format!("{buckets}{bucket}")
    }
}

#[async_trait]
impl BucketStore for RedisBuckets {
    async fn put(&self, changes: &[(&str, Option<&str>)]) -> Result<PutIn, ServiceError> {
        let (interval, cap) = (self.options.interval.to_string(), self.options.cap.to_string());
        let values: Vec<_> = changes
            .iter()
            .map(|(_, value)| value.map_or_else(String::new, |value| format!("={value}")))
            .collect();
        let mut arguments = vec![interval.as_bytes(), cap.as_bytes()];
        for ((key, _), value) in changes.iter().zip(&values) {
            arguments.extend([key.as_bytes(), value.as_bytes()]);
        }
        let answer: Value = self.run(&PUT, &arguments).await?;
        match &answer {
            Value::Int(seconds) => Ok(PutIn::Bucket(Bucket(u64::try_from(*seconds).unwrap_or(0)))),
            Value::BulkString(text) if text == b"full" => {
                self.options.warn_of_stop();
                Ok(PutIn::Stopped(StopCause::Emergency))
            }
            other => Ok(PutIn::Stopped(stopped(other)?)),
        }
    }

    async fn closed(&self, most: usize) -> Result<Vec<Bucket>, ServiceError> {
        let age = (self.options.interval + self.options.margin).to_string();
        let most = i64::try_from(most).unwrap_or(i64::MAX).to_string();
        let closed: Vec<u64> = self.run(&CLOSED, &[age.as_bytes(), most.as_bytes()]).await?;
        Ok(closed.into_iter().map(Bucket).collect())
    }

    async fn read(
        &self,
        bucket: Bucket,
        from: Option<&str>,
        bytes: usize,
    ) -> Result<Piece, ServiceError> {
        let (name, bytes, beside) =
            (bucket.to_string(), bytes.to_string(), ENTRY_BYTES.to_string());
        let arguments = [&name, from.unwrap_or(SCAN_ENDS), &bytes, &beside].map(str::as_bytes);
        let found = self.run(&READ, &arguments).await;
        let (next, found): (String, Vec<(Vec<u8>, Vec<u8>)>) =
            found.map_err(|error| error.about(&self.in_bucket(bucket)))?;
        let entries = found.into_iter().map(|(key, value)| entry(bucket, key, value)).collect();
        Ok(Piece::new(entries, Some(next).filter(|next| next != SCAN_ENDS)))
    }

    async fn remove(
        &self,
        token: FencingToken,
        buckets: &[Bucket],
    ) -> Result<Fenced<u64>, ServiceError> {
        let buckets: Vec<_> = buckets.iter().map(ToString::to_string).collect();
        let buckets: Vec<_> = buckets.iter().map(String::as_str).collect();
        self.run_under(&REMOVE, token, &buckets).await
    }

    async fn remove_keys(
        &self,
        token: FencingToken,
        bucket: Bucket,
        keys: &[&str],
    ) -> Result<Fenced<u64>, ServiceError> {
        let bucket = bucket.to_string();
        self.run_under(&REMOVE_KEYS, token, &[&[bucket.as_str()], keys].concat()).await
    }

    async fn list(
        &self,
        range: RangeInclusive<Bucket>,
    ) -> Result<Vec<(Bucket, u64)>, ServiceError> {
        let (from, to) = (range.start().to_string(), range.end().to_string());
        let found: Vec<(u64, u64)> = self.run(&LIST, &[from.as_bytes(), to.as_bytes()]).await?;
        Ok(found.into_iter().map(|(seconds, count)| (Bucket(seconds), count)).collect())
    }

    async fn marker(&self) -> Result<Option<Bucket>, ServiceError> {
        let [_, state, _] = &self.keys;
        let mut command = redis::cmd("HGET");
        let marker: Option<u64> =
            self.link.command(SERVICE, command.arg(state).arg("marker")).await?;
        Ok(marker.map(Bucket))
    }

    async fn intake(&self) -> Result<Intake, ServiceError> {
        let [_, state, _] = &self.keys;
        let mut command = redis::cmd("HGET");
        let found = self.link.command(SERVICE, command.arg(state).arg("intake")).await?;
        intake(&found, AT_FIRST)
    }

    async fn set_intake(&self, to: Intake) -> Result<Intake, ServiceError> {
        let words = [word(to).as_bytes(), word(AT_FIRST).as_bytes()];
        intake(&self.run(&INTAKE, &words).await?, AT_FIRST)
    }

    async fn clear(&self) -> Result<Option<u64>, ServiceError> {
        self.run(&CLEAR, &[]).await
    }
}

/// An entry whose key or value is not UTF-8 has no value. The pipeline counts such an entry as bad,
/// and the exporter removes it with its bucket.
fn entry(bucket: Bucket, key: Vec<u8>, value: Vec<u8>) -> Entry {
    match (String::from_utf8(key), String::from_utf8(value)) {
        (Ok(key), Ok(value)) => Entry::new(bucket, key, value.strip_prefix('=').map(str::to_owned)),
        (key, value) => {
            let key = key.unwrap_or_else(|error| lossy(&error));
            let text = value.unwrap_or_else(|error| lossy(&error));
            warn!(%bucket, key, text = beginning(&text), "bucket entry is not UTF-8, skipped");
            Entry::new(bucket, key, None)
        }
    }
}

fn lossy(error: &FromUtf8Error) -> String {
    String::from_utf8_lossy(error.as_bytes()).into_owned()
}

script!(PUT "../buffer/scripts/gate.lua" "scripts/put.lua");
script!(CLOSED "scripts/closed.lua");
script!(READ "scripts/read.lua");
script!(REMOVE "../buffer/scripts/fence.lua" "scripts/remove.lua");
script!(REMOVE_KEYS "../buffer/scripts/fence.lua" "scripts/remove_keys.lua");
script!(LIST "scripts/list.lua");
script!(INTAKE "../buffer/scripts/intake.lua");
script!(CLEAR "scripts/clear.lua");

const SERVICE: &str = "bucket store";

/// Redis starts and ends a scan with this cursor.
const SCAN_ENDS: &str = "0";
