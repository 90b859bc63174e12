//! The Lua scripts of a quorum's nodes. Start with `common.lua`: its head describes the strings of a key.

use std::sync::LazyLock;

use crate::scripts::{LeaseScript, scripts};

scripts! {
    "quorum/";
    ADOPT "adopt";
    CLAIM "claim";
    EVICT "evict";
    HEARTBEAT "heartbeat";
    HOLDER "holder";
    JOIN "join";
    MARK "mark";
    RELEASE "release";
    RESERVE "reserve";
    RESTORE "restore";
    WITHDRAW "withdraw";
}
