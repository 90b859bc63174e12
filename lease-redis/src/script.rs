//! The scripts: what runs on the server, as one step each.

use redis::{Cmd, Script, Value};
use std::sync::LazyLock;

/// A script with its hash, and the common part in front.
#[derive(Debug)]
pub(crate) struct LeaseScript {
    name: &'static str,
    text: String,
    hash: String,
}

/// One call of a script: which, on which keys, with which arguments.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    script: &'static LeaseScript,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

impl LeaseScript {
    fn new(name: &'static str, text: &str) -> Self {
        let text = format!("{}{text}", include_str!("scripts/common.lua"));
        let hash = Script::new(&text).get_hash().to_owned();
        Self { name, text, hash }
    }

    pub(crate) fn on<const N: usize>(&'static self, keys: [String; N]) -> Call {
        Call { script: self, keys: keys.into(), arguments: Vec::new() }
    }
}

impl Call {
    pub(crate) fn key(mut self, key: String) -> Self {
        self.keys.push(key);
        self
    }

    pub(crate) fn arg(mut self, argument: impl Into<Vec<u8>>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn number(self, number: u64) -> Self {
        self.arg(number.to_string())
    }

    /// By hash: the usual way, a fifth of the bytes.
    pub(crate) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", &self.script.hash)
    }

    /// By text: where the server does not know the script yet, or has forgotten it. Unlike
    /// `SCRIPT LOAD`, this goes to the one node that needs it.
    pub(crate) fn by_text(&self) -> Cmd {
        self.command("EVAL", &self.script.text)
    }

    pub(crate) fn name(&self) -> &'static str {
        self.script.name
    }

    fn command(&self, command: &str, script: &str) -> Cmd {
        let mut built = redis::cmd(command);
        built.arg(script).arg(self.keys.len()).arg(&self.keys);
        for argument in &self.arguments {
            built.arg(argument);
        }
        built
    }
}

macro_rules! scripts {
    ($($constant:ident $name:literal;)*) => {
        $(
            pub(crate) static $constant: LazyLock<LeaseScript> = LazyLock::new(|| {
                LeaseScript::new($name, include_str!(concat!("scripts/", $name, ".lua")))
            });
        )*
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

/// The strings of an array, in order; everything that is not a string is `None`.
pub(crate) fn texts(value: &Value) -> Option<Vec<Option<String>>> {
    match value {
        Value::Array(items) => Some(items.iter().map(text).collect()),
        _ => None,
    }
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
