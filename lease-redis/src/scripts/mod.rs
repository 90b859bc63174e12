//! The scripts: what runs on the server, as one step each.

use std::fmt::Display;
use std::sync::LazyLock;

use redis::{Arg, Cmd, RedisWrite, Script, ToRedisArgs, Value};

/// A script with its hash, and what it uses of the common part in front.
#[derive(Debug)]
pub(crate) struct LeaseScript {
    name: &'static str,
    text: String,
    hash: String,
}

/// One call of a script: which, on which keys, with which arguments.
///
/// The arguments are written straight into the command: a batch of heartbeats has hundreds of them.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    script: &'static LeaseScript,
    by_hash: Cmd,
}

impl LeaseScript {
    fn new(name: &'static str, text: &str) -> Self {
        let text = linked(text);
        let hash = Script::new(&text).get_hash().to_owned();
        Self { name, text, hash }
    }

    pub(crate) fn on<K: Display>(
        &'static self,
        keys: impl IntoIterator<Item = K, IntoIter: ExactSizeIterator>,
    ) -> Call {
        let keys = keys.into_iter();
        // Room for what comes with a key: the command is then not moved while it is written.
        let room = keys.len() + 1;
        let mut by_hash = Cmd::with_capacity(8 * room, 128 * room);
        by_hash.arg("EVALSHA").arg(&self.hash).arg(keys.len());
        for key in keys {
            by_hash.write_arg_fmt(key);
        }
        Call { script: self, by_hash }
    }
}

impl Call {
    pub(crate) fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.by_hash.arg(argument);
        self
    }

    pub(crate) fn number(self, number: u64) -> Self {
        self.arg(number)
    }

    /// `argument` as it is shown to people, too.
    pub(crate) fn text(mut self, argument: impl Display) -> Self {
        self.by_hash.write_arg_fmt(argument);
        self
    }

    /// By hash: the usual way, a fifth of the bytes.
    pub(crate) fn by_hash(&self) -> &Cmd {
        &self.by_hash
    }

    /// By text: where the server does not know the script yet, or has forgotten it. Unlike
    /// `SCRIPT LOAD`, this goes to the one node that needs it.
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

/// `script` behind the common part, but for functions that it does not use: Lua makes each of them
/// anew at every call, and all together would take a server longer than what most scripts do.
///
/// They are divided by empty lines, and use those above them alone.
fn linked(script: &str) -> String {
    let parts = include_str!("scripts/common.lua").trim_end().rsplit("\n\n");
    parts.fold(script.to_owned(), |text, part| {
        let function = part.lines().find_map(|line| line.strip_prefix("local function "));
        let name = function.and_then(|rest| rest.split_inclusive('(').next());
        if name.is_none_or(|name| text.contains(name)) { format!("{part}\n\n{text}") } else { text }
    })
}

/// The text of a script as servers are sent it: for simulations, and to call it bare.
#[cfg(feature = "simulation")]
#[doc(hidden)]
#[must_use]
pub fn script(name: &str) -> Option<&'static str> {
    all().into_iter().find(|script| script.name == name).map(|script| script.text.as_str())
}

macro_rules! scripts {
    ($($constant:ident $name:literal;)*) => {
        $(
            pub(crate) static $constant: LazyLock<LeaseScript> = LazyLock::new(|| {
                LeaseScript::new($name, include_str!(concat!("scripts/", $name, ".lua")))
            });
        )*

        #[cfg(any(test, feature = "simulation"))]
        fn all() -> Vec<&'static LeaseScript> {
            vec![$(&$constant),*]
        }
    };
}

scripts! {
    ADOPT "adopt";
    CREATE "create";
    DELETE "delete";
    EVICT "evict";
    HEARTBEAT "heartbeat";
    HOLDER "holder";
    OBTAIN "obtain";
    PUT_BACK "put_back";
    RAISE "raise";
    READ "read";
    RELEASE "release";
    TRANSFER "transfer";
    UPDATE "update";
    WITHDRAW "withdraw";
}

/// A reply as text: scripts answer strings and whole numbers.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_each_function_that_it_calls_above_it_and_no_other() {
        let common = include_str!("scripts/common.lua");
        let functions = || common.lines().filter_map(|line| line.strip_prefix("local function "));
        let names = || functions().filter_map(|rest| rest.split_inclusive('(').next());
        assert!(names().count() > 10);
        for script in all() {
            for name in names() {
                let making = format!("local function {name}");
                let (above, below) = script.text.split_once(&making).unwrap_or(("", &script.text));
                let is_made = below.len() < script.text.len();
                assert_eq!(is_made, below.contains(name), "{}: {name}", script.name);
                assert!(!above.contains(name), "{}: {name} is called too early", script.name);
            }
        }
        assert!(!OBTAIN.text.contains("local function vacate("), "nothing is left out");
    }
}
