//! What no emulator answers, but Kinesis does.
