//! The Lua scripts of one logical server. Each script runs as one atomic step.
//!
//! Start with `common.lua`, whose head describes the forms of a lease. [`key_space`] names keys and channels.
//! [`attributes`] is the text format of attribute values.

pub(crate) mod attributes;
pub(crate) mod key_space;

use std::fmt::Display;
use std::sync::LazyLock;
use std::time::Duration;

use lease_core::store::{Nonce, Parent};
use redis::{Arg, Cmd, RedisWrite, Script, ToRedisArgs, Value};

/// A script with its hash. Its text begins with the functions of `common.lua` that it uses.
#[derive(Debug)]
pub(crate) struct LeaseScript {
    name: &'static str,
    text: String,
    hash: String,
}

/// A batch of heartbeats has hundreds of arguments, so the arguments are written directly into the command.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    script: &'static LeaseScript,
    by_hash: Cmd,
    min_run: Duration,
}

impl LeaseScript {
    /// The text `usual`, if any, calls the function `others` for unusual cases. `others` has the functions of
    /// `common` and the code of `text`.
    pub(crate) fn new(
        name: &'static str,
        common: &str,
        text: &str,
        usual: Option<&'static str>,
    ) -> Self {
        let others = linked(common, text);
        let text = match usual {
            None => others,
            Some(usual) => format!("local function others(...)\n{others}end\n\n{usual}"),
        };
        let hash = Script::new(&text).get_hash().to_owned();
        Self { name, text, hash }
    }

    #[cfg(feature = "simulation")]
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    #[cfg(feature = "simulation")]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn on<K: Display>(
        &'static self,
        keys: impl IntoIterator<Item = K, IntoIter: ExactSizeIterator>,
    ) -> Call {
        let keys = keys.into_iter();
        let count = keys.len() + 1;
        let mut by_hash = Cmd::with_capacity(8 * count, 128 * count);
        by_hash.arg("EVALSHA").arg(&self.hash).arg(keys.len());
        for key in keys {
            by_hash.write_arg_fmt(key);
        }
        Call { script: self, by_hash, min_run: Duration::ZERO }
    }
}

impl Call {
    pub(crate) fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.by_hash.arg(argument);
        self
    }

    pub(crate) fn after(mut self, min_run: Duration) -> Self {
        self.min_run = min_run;
        self
    }

    pub(crate) fn min_run(&self) -> Duration {
        self.min_run
    }

    pub(crate) fn number(self, number: u64) -> Self {
        self.arg(number)
    }

    /// Without a session, adds two empty texts.
    pub(crate) fn session(self, session: Option<&Parent>) -> Self {
        match session {
            Some(session) => self.arg(session.key.as_str()).number(session.token.get()),
            None => self.arg("").arg(""),
        }
    }

    pub(crate) fn text(mut self, argument: impl Display) -> Self {
        self.by_hash.write_arg_fmt(argument);
        self
    }

    /// Returns the usual command, with a fifth of the bytes of the text.
    pub(crate) fn by_hash(&self) -> &Cmd {
        &self.by_hash
    }

    /// Unlike `SCRIPT LOAD`, `EVAL` goes to the node that needs the script.
    pub(crate) fn by_text(&self) -> Cmd {
        let mut built = redis::cmd("EVAL");
        built.arg(&self.script.text);
        for argument in self.by_hash.args_iter().skip(2) {
            if let Arg::Simple(argument) = argument {
                built.arg(argument);
            }
        }
        built
    }

    pub(crate) fn name(&self) -> &'static str {
        self.script.name
    }
}

/// Lua creates each function anew at every call. The creation of all functions would take longer than most
/// scripts run.
///
/// Empty lines separate functions. A function uses only functions above it. A script may begin with a part
/// that uses none of them, up to the line `--- functions`. If this part returns, no function is created.
fn linked(common: &str, script: &str) -> String {
    let (first, script) = script.split_once(FUNCTIONS).unwrap_or(("", script));
    let parts = common.trim_end().rsplit("\n\n");
    let linked = parts.fold(script.to_owned(), |text, part| {
        let function = part.lines().find_map(|line| line.strip_prefix("local function "));
        let name = function.and_then(|rest| rest.split_inclusive('(').next());
        if name.is_none_or(|name| text.contains(name)) { format!("{part}\n\n{text}") } else { text }
    });
    format!("{first}{linked}")
}

const FUNCTIONS: &str = "--- functions\n\n";

/// `$prefix` precedes the scripts' names in tests. `$usual` names the file with the usual case of a script.
macro_rules! scripts {
    (@usual) => {
        None
    };
    (@usual $usual:literal) => {
        Some(include_str!(concat!($usual, ".lua")))
    };
    ($prefix:literal; $($constant:ident $name:literal $(after $usual:literal)?;)*) => {
        $(
            pub(crate) static $constant: LazyLock<LeaseScript> = LazyLock::new(|| {
                let (common, text) =
                    (include_str!("common.lua"), include_str!(concat!($name, ".lua")));
                let usual = $crate::scripts::scripts!(@usual $($usual)?);
                LeaseScript::new(concat!($prefix, $name), common, text, usual)
            });
        )*

        #[cfg(any(test, feature = "simulation"))]
        pub(crate) fn all() -> Vec<&'static LeaseScript> {
            vec![$(&$constant),*]
        }
    };
}
pub(crate) use scripts;

scripts! {
    "";
    ADOPT "adopt";
    COUNT "count";
    CREATE "create";
    DELETE "delete";
    END_SESSION "end_session";
    ENQUEUE "enqueue";
    EVICT "evict";
    HEARTBEAT "heartbeat";
    HOLDER "holder";
    KEEP "keep";
    LEAVE "leave";
    MARK "mark";
    OBTAIN "obtain";
    OBTAIN_UNDER "obtain_under";
    READ "read";
    RELEASE "release";
    RESERVE "reserve";
    TAKE_TOKEN "take_token";
    TRANSFER "transfer";
    UPDATE "update";
}

pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

pub(crate) fn read_page(answer: &Value) -> Option<(String, Vec<String>)> {
    let Value::Array(parts) = answer else { return None };
    let [cursor, Value::Array(names)] = &parts[..] else { return None };
    let names: Option<Vec<_>> = names.iter().map(text).collect();
    Some((text(cursor)?, names?))
}

pub(crate) fn nonce_text(nonce: Nonce) -> String {
    nonce.get().simple().to_string()
}

/// Rounds up, so that a lease never ends before its ttl has passed.
pub(crate) fn millis(length: Duration) -> u64 {
    let millis = length.as_nanos().div_ceil(1_000_000);
    // Redis refuses an expiry that overflows when it is added to the time. So the limit is a million years.
    u64::try_from(millis).unwrap_or(u64::MAX).clamp(1, 31_536_000_000_000_000)
}

/// The resolution of expiries in Redis.
pub(crate) const GRAIN: Duration = Duration::from_millis(1);

/// With this number of heartbeats, a script blocks the server for less than a millisecond.
pub(crate) const BATCH: usize = 100;

pub(crate) const BATCHES_AT_ONCE: usize = 64;

pub(crate) fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_script_has_exactly_the_functions_it_calls() {
        check_linked(include_str!("common.lua"), all());
        check_linked(include_str!("../quorum/scripts/common.lua"), crate::quorum::scripts::all());
        assert!(!OBTAIN.text.contains("local function vacate("), "an unused function was linked");
    }

    fn check_linked(common: &str, scripts: Vec<&'static LeaseScript>) {
        let functions = || common.lines().filter_map(|line| line.strip_prefix("local function "));
        let names = || functions().filter_map(|rest| rest.split_inclusive('(').next());
        assert!(names().count() > 10);
        for script in scripts {
            for name in names() {
                let definition = format!("local function {name}");
                let (above, below) =
                    script.text.split_once(&definition).unwrap_or(("", &script.text));
                let is_defined = below.len() < script.text.len();
                assert_eq!(is_defined, below.contains(name), "{}: {name}", script.name);
                assert!(
                    !above.contains(name),
                    "{}: {name} is called before its definition",
                    script.name
                );
            }
        }
    }
}
