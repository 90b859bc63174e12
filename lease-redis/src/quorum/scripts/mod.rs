//! The Lua scripts of a quorum's nodes. Start with `common.lua`, whose head describes the string of a key.
//! The scripts of claims and of releases begin with their usual case, in separate files.

use std::sync::LazyLock;

use crate::scripts::{LeaseScript, scripts};

scripts! {
    "quorum/";
    ADOPT "adopt";
    CLAIM "claim" after "claim_usual";
    EVICT "evict";
    HEARTBEAT "heartbeat";
    HOLDER "holder";
    JOIN "join";
    MARK "mark";
    RELEASE "release" after "release_usual";
    RESERVE "reserve";
    RESTORE "restore";
    WITHDRAW "withdraw";
}
