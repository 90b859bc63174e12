//! Entry points that only fuzzers use: the parsers of servers' answers and of URLs.

use std::sync::LazyLock;

use redis::Value;

use crate::connection::diagnose::Eviction;
use crate::connection::node::{Check, Node};
use crate::connection::settings::ConnectionSettings;
use crate::scripts::attributes::{read_attributes, write};

/// Parses `bytes` as a server's answer to each script.
pub fn reply(bytes: &[u8]) {
    let Ok(value) = redis::parse_redis_value(bytes) else { return };
    drop(NODE.read_vote("fuzzed", &value, NODE.now()));
    drop(NODE.read_claim("fuzzed", &value));
    drop(NODE.read_record(&value));
    attributes(&value);
}

/// Asserts that the text of parsed attributes parses to the same values.
fn attributes(value: &Value) {
    let Some(Some(attributes)) = read_attributes(value) else { return };
    for value in attributes.values() {
        let Some(written) = write(value) else { continue };
        let fields = [b"." as &[u8], b"1", b"=name", written.as_bytes()];
        let fields = fields.map(|field| Value::BulkString(field.to_vec()));
        let again = read_attributes(&Value::Array(fields.into()));
        let again = again.flatten().and_then(|mut attributes| attributes.remove("name"));
        assert_eq!(again.as_ref(), Some(value), "written as {written}");
    }
}

/// Parses `bytes` as a URL. Asserts that no error contains the password.
pub fn url(bytes: &[u8]) {
    let Ok(url) = std::str::from_utf8(bytes) else { return };
    let (settings, urls) = (ConnectionSettings::default(), [url.to_owned()]);
    let refusals = [
        settings.standalone(url, None).err(),
        settings.sentinel(&urls, "master", None, None).err(),
        settings.cluster(&urls, None).err(),
    ];
    // The path of a socket has no password.
    let network = url.split_once("://").filter(|(scheme, _)| scheme.starts_with("redis"));
    let user = network.and_then(|(_, rest)| rest.rsplit_once('@')).map(|(user, _)| user);
    let password = user.and_then(|user| user.split_once(':')).map(|(_, password)| password);
    for refusal in refusals.into_iter().flatten() {
        if let Some(password) = password.filter(|password| password.len() > 8) {
            assert!(!refusal.to_string().contains(password), "{refusal}");
        }
    }
}

static NODE: LazyLock<Node> = LazyLock::new(|| {
    let settings = ConnectionSettings::default();
    #[expect(clippy::expect_used, reason = "the URL is valid")]
    let (name, connector) = settings.standalone("redis://nowhere", None).expect("a connector");
    let check = Check { eviction: Eviction::Refused, admission: None };
    settings.node(name, connector, check)
});
