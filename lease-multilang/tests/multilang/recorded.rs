//! Lines that Amazon's daemon exchanged with children, as recorded by a child.

use lease_multilang::protocol::{FromChild, Generation, ToChild};

#[test]
fn recorded_messages_to_children_are_encoded_byte_for_byte() {
    let mut messages = 0;
    for line in RECORDED.lines().filter_map(|line| line.strip_prefix("> ")) {
        let message = ToChild::decode(line).unwrap();

        assert_eq!(message.encode(Generation::G2), line);
        messages += 1;
    }
    assert_eq!(messages, 182);
}

/// Java repeats the fields of the request.
#[test]
fn recorded_replies_to_checkpoints_repeat_the_requests() {
    let (mut replies, mut request) = (0, None);
    for line in RECORDED.lines() {
        if let Some(line) = line.strip_prefix("< ") {
            request = match FromChild::decode(line, Generation::G2).unwrap() {
                FromChild::Checkpoint(request) => Some(request),
                FromChild::Status { .. } => None,
            };
        } else if let Some(line) = line.strip_prefix("> ")
            && let ToChild::Checkpoint(reply) = ToChild::decode(line).unwrap()
        {
            assert_eq!(Some(reply.request), request.take(), "{line}");
            replies += 1;
        }
    }
    assert_eq!(replies, 80);
}

const RECORDED: &str = include_str!("../data/multilang-daemon-2.7.2.txt");
