//! Runs the real scripts on a node, in the version of Lua that Redis has.

use std::cell::RefCell;
use std::collections::HashMap;

use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value, Variadic};

use super::node::Node;
use super::resp::{Bytes, Reply};

pub(crate) fn run(script: &str, keys: &[Bytes], arguments: &[Bytes], node: &mut Node) -> Reply {
    INTERPRETER.with(|interpreter| interpreter.run(script, keys, arguments, node))
}

thread_local! {
    /// All nodes of a thread share one interpreter, since its start takes longer than all scripts
    /// of a trial.
    static INTERPRETER: Interpreter = Interpreter::new().unwrap();
}

struct Interpreter {
    lua: Lua,
    compiled: RefCell<HashMap<String, Function>>,
}

impl Interpreter {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let redis = lua.create_table()?;
        let call = |lua: &Lua, words: Variadic<Value>| match command(lua, &words)? {
            Reply::Error(text) => Err(mlua::Error::runtime(text)),
            reply => to_lua(lua, &reply),
        };
        redis.set("call", lua.create_function(call)?)?;
        let pcall = |lua: &Lua, words: Variadic<Value>| to_lua(lua, &command(lua, &words)?);
        redis.set("pcall", lua.create_function(pcall)?)?;
        lua.globals().set("redis", redis)?;
        Ok(Self { lua, compiled: RefCell::default() })
    }

    fn run(&self, script: &str, keys: &[Bytes], arguments: &[Bytes], node: &mut Node) -> Reply {
        let strings = |strings: &[Bytes]| {
            let strings = strings.iter().map(|bytes| self.lua.create_string(bytes).unwrap());
            self.lua.create_sequence_from(strings).unwrap()
        };
        self.lua.globals().raw_set("KEYS", strings(keys)).unwrap();
        self.lua.globals().raw_set("ARGV", strings(arguments)).unwrap();

        self.lua.set_app_data(std::mem::take(node));
        let answer = self.compiled(script).call::<Value>(());
        *node = self.lua.remove_app_data().unwrap();

        match answer {
            Ok(value) => from_lua(&value),
            Err(error) => Reply::Error(format!("ERR {}", error.to_string().replace('\n', " "))),
        }
    }

    fn compiled(&self, script: &str) -> Function {
        let mut compiled = self.compiled.borrow_mut();
        if let Some(function) = compiled.get(script) {
            return function.clone();
        }
        let function = self.lua.load(script).into_function().unwrap();
        compiled.insert(script.to_owned(), function.clone());
        function
    }
}

fn command(lua: &Lua, words: &[Value]) -> mlua::Result<Reply> {
    let words = words.iter().map(word).collect::<mlua::Result<Vec<_>>>()?;
    let mut node = lua.app_data_mut::<Node>().unwrap();
    Ok(node.execute(&words))
}

fn word(value: &Value) -> mlua::Result<Bytes> {
    match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        // Redis prints whole numbers below 2^63 without an exponent.
        Value::Number(number) => Ok(format!("{number}").into_bytes()),
        other => Err(mlua::Error::runtime(format!("not an argument of a command: {other:?}"))),
    }
}

/// As in Redis, nil becomes `false`.
fn to_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Number(number) => Value::Integer(*number),
        Reply::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Nil => Value::Boolean(false),
        Reply::Status(text) => Value::Table(lua.create_table_from([("ok", *text)])?),
        Reply::Error(text) => Value::Table(lua.create_table_from([("err", text.as_str())])?),
        Reply::Array(items) => {
            let items: Vec<_> =
                items.iter().map(|item| to_lua(lua, item)).collect::<Result<_, _>>()?;
            Value::Table(lua.create_sequence_from(items)?)
        }
    })
}

/// As in Redis, numbers are truncated, and a table ends at its first `nil`.
fn from_lua(value: &Value) -> Reply {
    match value {
        Value::Boolean(true) => Reply::Number(1),
        Value::Integer(number) => Reply::Number(*number),
        #[expect(clippy::cast_possible_truncation, reason = "as Redis does")]
        Value::Number(number) => Reply::Number(*number as i64),
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Table(table) => from_table(table),
        _ => Reply::Nil,
    }
}

fn from_table(table: &Table) -> Reply {
    if let Ok(text) = table.raw_get::<String>("err") {
        return Reply::Error(text);
    }
    let items = (1..).map_while(|place: i64| match table.raw_get::<Value>(place) {
        Ok(Value::Nil) | Err(_) => None,
        Ok(item) => Some(from_lua(&item)),
    });
    Reply::Array(items.collect())
}
