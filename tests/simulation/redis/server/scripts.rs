//! The scripts that lease-redis sends, by name, and edited versions of them for controls.

use std::sync::LazyLock;

use lease_core::conformance::Call;

#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) call: Call,
    /// The client sends the text or its hash.
    pub(crate) whole: String,
    pub(crate) hash: String,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Edition {
    edits: Vec<Edit>,
    without_transactions: bool,
}

#[derive(Debug, Clone)]
struct Edit {
    script: &'static str,
    whole: String,
}

impl Edition {
    /// Replaces `from`, which the text of `script` must contain, by `to`.
    pub(crate) fn with(mut self, script: &'static str, from: &str, to: &str) -> Self {
        let earlier = self.edits.iter().position(|edit| edit.script == script);
        let whole = match earlier {
            Some(earlier) => self.edits.remove(earlier).whole,
            None => named(script).whole.clone(),
        };
        assert!(whole.contains(from), "{script}.lua does not contain {from:?}");
        self.edits.push(Edit { script, whole: whole.replace(from, to) });
        self
    }

    /// Servers then execute the commands of a transaction as they arrive.
    pub(crate) fn executing_at_once(self) -> Self {
        Self { without_transactions: true, ..self }
    }

    pub(crate) fn without_transactions(&self) -> bool {
        self.without_transactions
    }

    pub(crate) fn text<'a>(&'a self, script: &'a Script) -> &'a str {
        let edit = self.edits.iter().find(|edit| edit.script == script.name);
        edit.map_or(&script.whole, |edit| &edit.whole)
    }
}

fn named(name: &str) -> &'static Script {
    SCRIPTS.iter().find(|script| script.name == name).unwrap()
}

pub(crate) fn known_as(text_or_hash: &[u8]) -> Option<&'static Script> {
    let by_text = |script: &&Script| {
        script.hash.as_bytes() == text_or_hash || script.whole.as_bytes() == text_or_hash
    };
    SCRIPTS.iter().find(by_text)
}

macro_rules! scripts {
    ($($name:literal $call:ident;)*) => {
        [$(($name, Call::$call)),*]
    };
}

static SCRIPTS: LazyLock<Vec<Script>> = LazyLock::new(|| {
    let scripts = scripts! {
        "adopt" Adopt;
        "count" Write;
        "create" Write;
        "delete" Write;
        "end_session" Write;
        "enqueue" Enqueue;
        "evict" Write;
        "heartbeat" Heartbeat;
        "holder" Read;
        "keep" Write;
        "leave" Leave;
        "mark" Read;
        "obtain" Obtain;
        "obtain_under" Obtain;
        "read" Read;
        "release" Release;
        "reserve" Release;
        "take_token" Obtain;
        "transfer" Write;
        "update" Write;
        "quorum/adopt" Adopt;
        "quorum/claim" Obtain;
        "quorum/evict" Write;
        "quorum/heartbeat" Heartbeat;
        "quorum/holder" Read;
        "quorum/join" Read;
        "quorum/mark" Read;
        "quorum/release" Release;
        "quorum/reserve" Release;
        "quorum/restore" Heartbeat;
        "quorum/withdraw" Release;
    };
    let script = |(name, call)| {
        let whole = lease_redis::script(name).unwrap().to_owned();
        let hash = redis::Script::new(&whole).get_hash().to_owned();
        Script { name, call, whole, hash }
    };
    scripts.into_iter().map(script).collect()
});
