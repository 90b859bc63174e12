//! The statements. Start with `obtain.sql`. `table.sql` describes the columns.
//!
//! Each statement checks and writes in one step. All compare with `clock_timestamp()`, because `now()` does
//! not advance within a transaction.

use std::sync::Arc;
use std::time::Duration;

use lease_core::store::{Claim, Grant, Nonce, Parent};
use tokio_postgres::types::{ToSql, Type};

use crate::error::ServerFault;

#[derive(Debug, Clone)]
pub(crate) struct Statements {
    table: TableName,
    by_name: Vec<(&'static str, Arc<str>)>,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) statement: Arc<str>,
    values: Vec<(Box<dyn ToSql + Send + Sync>, Type)>,
}

#[derive(Debug, Clone)]
pub(crate) struct TableName {
    schema: Option<String>,
    name: String,
}

impl TableName {
    pub(crate) fn parse(text: &str) -> Result<Self, ServerFault> {
        let (schema, name) = match text.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, text),
        };
        let is_name = |part: &str| {
            let limit = MAX_NAME - FREED.len();
            (1..=limit).contains(&part.len()) && !part.contains(['"', '.', '\0'])
        };
        if !is_name(name) || !schema.is_none_or(is_name) {
            return Err(ServerFault::misconfigured(format!(
                "the table {text:?} is no valid name: give `table` or `schema.table`, of 1 to {} bytes \
                 each, without quotes",
                MAX_NAME - FREED.len()
            )));
        }
        Ok(Self { schema: schema.map(str::to_owned), name: name.to_owned() })
    }

    pub(crate) fn quoted(&self) -> String {
        match &self.schema {
            Some(schema) => format!("\"{schema}\".\"{}\"", self.name),
            None => format!("\"{}\"", self.name),
        }
    }

    pub(crate) fn channel(&self) -> String {
        format!("{}{FREED}", self.name)
    }
}

impl Statements {
    pub(crate) fn new(table: TableName) -> Self {
        let quoted = table.quoted();
        // Removes comment lines, because each request sends the text of its statement.
        let is_sent = |line: &&str| !line.trim_start().starts_with("--");
        let of_table = |text: &str| {
            let lines: Vec<_> = text.lines().filter(is_sent).map(str::trim).collect();
            Arc::from(lines.join("\n").replace("\"lease\"", &quoted))
        };
        let mut by_name: Vec<_> =
            TEXTS.iter().map(|(name, text)| (*name, of_table(text))).collect();
        by_name.push((BATCH, Arc::from("")));
        let mut statements = Self { table, by_name };
        statements.derive_batch();
        statements
    }

    /// Removes the lock timeout from the shortest statements, for sessions that have it. To set it takes a tenth of
    /// their time.
    pub(crate) fn without_lock_timeout(&mut self) {
        for (name, text) in &mut self.by_name {
            if [OBTAIN_RELEASED, RELEASE].contains(name) {
                *text = Arc::from(text.replace(LOCK_TIMEOUT, ""));
            }
        }
    }

    pub(crate) fn call(&self, name: &str) -> Call {
        Call { statement: self.text(name), values: Vec::new() }
    }

    pub(crate) fn table(&self) -> &TableName {
        &self.table
    }

    pub(crate) fn text(&self, name: &str) -> Arc<str> {
        let found = self.by_name.iter().find(|(known, _)| *known == name);
        found.map_or_else(|| Arc::from(""), |(_, text)| Arc::clone(text))
    }

    /// Returns whether the statement had this part.
    #[cfg(feature = "sabotage")]
    pub(crate) fn alter(&mut self, name: &str, part: &str, replacement: &str) -> bool {
        let Some((_, text)) = self.by_name.iter_mut().find(|(known, _)| *known == name) else {
            return false;
        };
        let had_part = text.contains(part);
        *text = Arc::from(text.replace(part, replacement));
        if name == HEARTBEAT {
            self.derive_batch();
        }
        had_part
    }

    fn derive_batch(&mut self) {
        let batch = self.text(HEARTBEAT).replace("FOR UPDATE OF l", "FOR UPDATE OF l SKIP LOCKED");
        if let Some((_, text)) = self.by_name.iter_mut().find(|(name, _)| *name == BATCH) {
            *text = Arc::from(batch);
        }
    }
}

impl Call {
    pub(crate) fn of(statement: &str) -> Self {
        Self { statement: Arc::from(statement), values: Vec::new() }
    }

    pub(crate) fn text(self, text: impl Into<String>) -> Self {
        self.with(text.into(), Type::TEXT)
    }

    pub(crate) fn optional_text(self, text: Option<String>) -> Self {
        self.with(text, Type::TEXT)
    }

    pub(crate) fn texts(self, texts: Vec<String>) -> Self {
        self.with(texts, Type::TEXT_ARRAY)
    }

    pub(crate) fn number(self, number: i64) -> Self {
        self.with(number, Type::INT8)
    }

    pub(crate) fn optional_number(self, number: Option<i64>) -> Self {
        self.with(number, Type::INT8)
    }

    pub(crate) fn numbers(self, numbers: Vec<i64>) -> Self {
        self.with(numbers, Type::INT8_ARRAY)
    }

    pub(crate) fn nonce(self, nonce: Nonce) -> Self {
        self.with(nonce.get(), Type::UUID)
    }

    pub(crate) fn nonces(self, nonces: impl Iterator<Item = Nonce>) -> Self {
        self.with(nonces.map(Nonce::get).collect::<Vec<_>>(), Type::UUID_ARRAY)
    }

    /// Five values: the key, the nonce, the lessee, the ttl and the number of the request.
    pub(crate) fn claim(self, claim: &Claim) -> Self {
        let call = self.text(claim.key.as_str()).nonce(claim.nonce).text(claim.lessee.as_str());
        call.number(micros(claim.ttl)).number(number(claim.request.get()))
    }

    /// Three values: the key, the nonce and the token.
    pub(crate) fn grant(self, grant: &Grant) -> Self {
        self.text(grant.key.as_str()).nonce(grant.nonce).number(number(grant.token.get()))
    }

    /// Two values: the key and the token of the session.
    pub(crate) fn parent(self, session: Option<&Parent>) -> Self {
        let call = self.optional_text(session.map(|session| session.key.as_str().to_owned()));
        call.optional_number(session.map(|session| number(session.token.get())))
    }

    pub(crate) fn values(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        self.values.iter().map(|(value, kind)| (&**value as _, kind.clone())).collect()
    }

    fn with(mut self, value: impl ToSql + Send + Sync + 'static, kind: Type) -> Self {
        self.values.push((Box::new(value), kind));
        self
    }
}

/// A number that does not fit becomes the largest `bigint`.
pub(crate) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Rounds up, so that a lease never ends before its ttl.
pub(crate) fn micros(length: Duration) -> i64 {
    number(u64::try_from(length.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX))
}

macro_rules! statements {
    ($($name:ident = $text:literal),* $(,)?) => {
        $(pub(crate) const $name: &str = $text;)*
        const TEXTS: &[(&str, &str)] =
            &[$(($text, include_str!(concat!($text, ".sql")))),*];
    };
}

statements! {
    ADOPT = "adopt",
    CHECK = "check",
    COUNT = "count",
    CREATE = "create",
    DELETE = "delete",
    END_SESSION = "end_session",
    EVICT = "evict",
    HAND_ON = "hand_on",
    HAND_TO_FIRST = "hand_to_first",
    HEARTBEAT = "heartbeat",
    HOLDER = "holder",
    LIST = "list",
    MARK = "mark",
    OBTAIN = "obtain",
    OBTAIN_RELEASED = "obtain_released",
    OBTAIN_RELEASED_ALL = "obtain_released_all",
    OBTAIN_UNDER = "obtain_under",
    PLACE = "place",
    PURGE = "purge",
    READ = "read",
    READ_ALL = "read_all",
    RELEASE = "release",
    RELEASE_ALL = "release_all",
    SCAN = "scan",
    TABLE = "table",
    TRANSFER = "transfer",
    UPDATE = "update",
    UPGRADE = "upgrade",
}

/// Skips locked rows instead of waiting for them.
pub(crate) const BATCH: &str = "heartbeat batch";

const LOCK_TIMEOUT: &str = "AND set_config('lock_timeout', $6, true) IS NOT NULL\n";

/// PostgreSQL allows at most this number of bytes in a name.
const MAX_NAME: usize = 63;
const FREED: &str = ":freed";
