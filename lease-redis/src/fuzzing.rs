//! What fuzzers call: each reader of what servers answer and users write. Not for other use.

use std::sync::LazyLock;

use redis::Value;

use crate::diagnose::Eviction;
use crate::node::{Check, Node};
use crate::reach::Common;
use crate::value::{read_attributes, write};

/// Reads `bytes` as a server's answer to each script.
pub fn reply(bytes: &[u8]) {
    let Ok(value) = redis::parse_redis_value(bytes) else { return };
    drop(NOWHERE.read_vote("fuzzed", &value));
    drop(NOWHERE.read_record(&value));
    attributes(&value);
}

/// What can be read is written such that it is read as the same.
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

/// Reads `bytes` as the URL of a server, of a Sentinel and of a Cluster's node. What is refused
/// is not repeated: it may carry a password.
pub fn url(bytes: &[u8]) {
    let Ok(url) = std::str::from_utf8(bytes) else { return };
    let (common, urls) = (Common::default(), [url.to_owned()]);
    let refusals = [
        common.standalone(url, None).err(),
        common.sentinel(&urls, "master", None, None).err(),
        common.cluster(&urls, None).err(),
    ];
    // A socket's path has none.
    let network = url.split_once("://").filter(|(scheme, _)| scheme.starts_with("redis"));
    let user = network.and_then(|(_, rest)| rest.rsplit_once('@')).map(|(user, _)| user);
    let password = user.and_then(|user| user.split_once(':')).map(|(_, password)| password);
    for refusal in refusals.into_iter().flatten() {
        if let Some(password) = password.filter(|password| password.len() > 8) {
            assert!(!refusal.to_string().contains(password), "{refusal}");
        }
    }
}

/// A node that is never connected to.
static NOWHERE: LazyLock<Node> = LazyLock::new(|| {
    let common = Common::default();
    #[expect(clippy::expect_used, reason = "a URL that is known to be right")]
    let (name, connector) = common.standalone("redis://nowhere", None).expect("a connector");
    let check = Check { eviction: Eviction::Refused, admit: Box::new(|_| Ok(())) };
    common.node(name, connector, check)
});
