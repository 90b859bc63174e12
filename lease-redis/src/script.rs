//! The scripts: what runs on the server, as one step each.

use redis::{Cmd, Script, Value};
use std::sync::LazyLock;

/// A script with its hash, and what it uses of the common part in front.
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
        let text = linked(text);
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
