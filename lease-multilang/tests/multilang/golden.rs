//! Checks the encoding of every message in each generation, byte for byte, in both directions.

use bytes::Bytes;
use lease_multilang::protocol::{
    Action, CheckpointReply, CheckpointRequest, ErrorName, FromChild, Generation, Initialize,
    InvalidMessage, ProcessRecords, ShutdownReason, StartPosition, ToChild, WireRecord,
};

use Generation::{G0, G1, G2};

fn initialize(start: Option<StartPosition>) -> ToChild {
    ToChild::Initialize(Initialize { shard_id: "shardId-0".into(), start })
}

fn start(sequence_number: &str) -> StartPosition {
    StartPosition { sequence_number: Some(sequence_number.into()), sub_sequence_number: Some(0) }
}

fn meow() -> WireRecord {
    WireRecord {
        data: Some(Bytes::from_static(b"meow")),
        partition_key: "cat".into(),
        sequence_number: "456".parse().unwrap(),
        approximate_arrival_timestamp: Some(1_476_889_707_000),
        sub_sequence_number: Some(0),
    }
}

fn records(records: Vec<WireRecord>, millis_behind_latest: Option<u64>) -> ToChild {
    ToChild::ProcessRecords(ProcessRecords { records, millis_behind_latest })
}

fn asked(sequence_number: Option<&str>, sub_sequence_number: Option<i64>) -> CheckpointRequest {
    CheckpointRequest { sequence_number: sequence_number.map(Into::into), sub_sequence_number }
}

fn reply(asked: CheckpointRequest, error: Option<ErrorName>) -> ToChild {
    ToChild::Checkpoint(CheckpointReply { request: asked, error })
}

fn assert_encoding(cases: &[(Generation, ToChild, &str)]) {
    for (generation, message, line) in cases {
        assert_eq!(message.encode(*generation), *line);
        assert_eq!(ToChild::decode(line).as_ref(), Ok(message));
    }
}

#[test]
fn initialize_survives_encoding_byte_for_byte() {
    assert_encoding(&[
        (G0, initialize(None), r#"{"action":"initialize","shardId":"shardId-0"}"#),
        (
            G1,
            initialize(Some(start("LATEST"))),
            r#"{"action":"initialize","shardId":"shardId-0","sequenceNumber":"LATEST","subSequenceNumber":0}"#,
        ),
        (
            G2,
            initialize(Some(start("TRIM_HORIZON"))),
            r#"{"action":"initialize","shardId":"shardId-0","sequenceNumber":"TRIM_HORIZON","subSequenceNumber":0}"#,
        ),
        (
            G2,
            initialize(Some(StartPosition::default())),
            r#"{"action":"initialize","shardId":"shardId-0","sequenceNumber":null,"subSequenceNumber":null}"#,
        ),
    ]);
}

#[test]
fn records_survive_encoding_byte_for_byte() {
    let no_place = WireRecord { sub_sequence_number: None, ..meow() };
    assert_encoding(&[
        (
            G0,
            records(vec![no_place.clone()], None),
            r#"{"action":"processRecords","records":[{"data":"bWVvdw==","partitionKey":"cat","sequenceNumber":"456","approximateArrivalTimestamp":1476889707000}]}"#,
        ),
        (
            G1,
            records(vec![meow()], Some(7)),
            r#"{"action":"processRecords","records":[{"data":"bWVvdw==","partitionKey":"cat","sequenceNumber":"456","approximateArrivalTimestamp":1476889707000,"subSequenceNumber":0,"action":"record"}],"millisBehindLatest":7}"#,
        ),
        (
            G2,
            records(vec![meow()], Some(0)),
            r#"{"action":"processRecords","records":[{"data":"bWVvdw==","partitionKey":"cat","sequenceNumber":"456","approximateArrivalTimestamp":1476889707000,"subSequenceNumber":0,"action":"record"}],"millisBehindLatest":0}"#,
        ),
        (
            G2,
            records(vec![], None),
            r#"{"action":"processRecords","records":[],"millisBehindLatest":null}"#,
        ),
        (
            G2,
            records(
                vec![WireRecord { data: None, approximate_arrival_timestamp: None, ..no_place }],
                None,
            ),
            r#"{"action":"processRecords","records":[{"data":null,"partitionKey":"cat","sequenceNumber":"456","approximateArrivalTimestamp":null,"subSequenceNumber":null,"action":"record"}],"millisBehindLatest":null}"#,
        ),
    ]);
}

#[test]
fn checkpoint_replies_survive_encoding_byte_for_byte() {
    let of_456 = || asked(Some("456"), Some(0));
    assert_encoding(&[
        (
            G0,
            reply(asked(Some("456"), None), None),
            r#"{"action":"checkpoint","checkpoint":"456","error":null}"#,
        ),
        (
            G0,
            reply(asked(None, None), Some(ErrorName::Shutdown)),
            r#"{"action":"checkpoint","checkpoint":null,"error":"ShutdownException"}"#,
        ),
        (
            G1,
            reply(of_456(), Some(ErrorName::InvalidState)),
            r#"{"action":"checkpoint","sequenceNumber":"456","subSequenceNumber":0,"error":"InvalidStateException"}"#,
        ),
        (
            G2,
            reply(of_456(), Some(ErrorName::Throttling)),
            r#"{"action":"checkpoint","sequenceNumber":"456","subSequenceNumber":0,"error":"ThrottlingException"}"#,
        ),
        (
            G2,
            reply(of_456(), None),
            r#"{"action":"checkpoint","sequenceNumber":"456","subSequenceNumber":0,"error":null}"#,
        ),
        (
            G2,
            reply(CheckpointRequest::default(), None),
            r#"{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null,"error":null}"#,
        ),
    ]);
}

#[test]
fn end_messages_survive_encoding_byte_for_byte() {
    assert_encoding(&[
        (G2, ToChild::LeaseLost, r#"{"action":"leaseLost"}"#),
        (G2, ToChild::ShardEnded, r#"{"action":"shardEnded"}"#),
        (G2, ToChild::ShutdownRequested, r#"{"action":"shutdownRequested"}"#),
        (
            G0,
            ToChild::Shutdown(ShutdownReason::Terminate),
            r#"{"action":"shutdown","reason":"TERMINATE"}"#,
        ),
        (
            G1,
            ToChild::Shutdown(ShutdownReason::Zombie),
            r#"{"action":"shutdown","reason":"ZOMBIE"}"#,
        ),
        (
            G1,
            ToChild::Shutdown(ShutdownReason::ShardEnd),
            r#"{"action":"shutdown","reason":"SHARD_END"}"#,
        ),
        (
            G1,
            ToChild::Shutdown(ShutdownReason::LeaseLost),
            r#"{"action":"shutdown","reason":"LEASE_LOST"}"#,
        ),
    ]);
}

#[test]
fn first_two_generations_get_shutdown_for_an_end() {
    for generation in [G0, G1] {
        let lost = ToChild::LeaseLost.encode(generation);
        assert_eq!(lost, r#"{"action":"shutdown","reason":"ZOMBIE"}"#);
        let ended = ToChild::ShardEnded.encode(generation);
        assert_eq!(ended, r#"{"action":"shutdown","reason":"TERMINATE"}"#);
    }
}

#[test]
fn child_messages_survive_encoding_byte_for_byte() {
    let checkpoint = |number, place| FromChild::Checkpoint(asked(number, place));
    let mut cases = vec![
        (G0, checkpoint(Some("456"), None), r#"{"action":"checkpoint","checkpoint":"456"}"#.into()),
        (G0, checkpoint(None, None), r#"{"action":"checkpoint","checkpoint":null}"#.into()),
    ];
    for generation in [G1, G2] {
        for (message, line) in [
            (
                checkpoint(Some("456"), Some(0)),
                r#"{"action":"checkpoint","sequenceNumber":"456","subSequenceNumber":0}"#,
            ),
            (
                checkpoint(None, None),
                r#"{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null}"#,
            ),
        ] {
            cases.push((generation, message, line.to_owned()));
        }
    }
    for generation in [G0, G1, G2] {
        for (action, word) in [
            (Action::Initialize, "initialize"),
            (Action::ProcessRecords, "processRecords"),
            (Action::LeaseLost, "leaseLost"),
            (Action::ShardEnded, "shardEnded"),
            (Action::ShutdownRequested, "shutdownRequested"),
            (Action::Shutdown, "shutdown"),
        ] {
            let line = format!(r#"{{"action":"status","responseFor":"{word}"}}"#);
            cases.push((generation, FromChild::done(action), line));
        }
    }

    for (generation, message, line) in cases {
        assert_eq!(message.encode(generation), line);
        assert_eq!(FromChild::decode(&line, generation), Ok(message));
    }
}

#[test]
fn initialize_without_start_is_of_the_first_generation() {
    let first = r#"{"action":"initialize","shardId":"shardId-0"}"#;
    let later = r#"{"action":"initialize","shardId":"shardId-0","sequenceNumber":null}"#;

    for (line, is_first) in [(first, true), (later, false)] {
        let Ok(ToChild::Initialize(initialize)) = ToChild::decode(line) else { panic!("{line}") };

        assert_eq!(initialize.is_of_first_generation(), is_first);
    }
}

#[test]
fn two_part_time_of_version_2_0_is_read() {
    let line = r#"{"action":"processRecords","records":[{"data":"bWVvdw==","partitionKey":"cat","sequenceNumber":"456","approximateArrivalTimestamp":{"epochSecond":1476889707,"nano":123456789},"subSequenceNumber":0,"action":"record"}],"millisBehindLatest":0}"#;

    let decoded = ToChild::decode(line);

    let arrived = Some(1_476_889_707_123);
    let record = WireRecord { approximate_arrival_timestamp: arrived, ..meow() };
    assert_eq!(decoded, Ok(records(vec![record], Some(0))));
}

#[test]
fn child_ignores_fields_of_later_daemons() {
    let line = r#"{"action":"shardEnded","checkpoint":"","later":[{"a":1}]}"#;

    assert_eq!(ToChild::decode(line), Ok(ToChild::ShardEnded));
}

/// Amazon's Java daemon also ignores a line with an unknown field.
#[test]
fn daemon_reports_why_a_line_is_not_a_message() {
    use InvalidMessage::{Blank, NoAction, NotAnObject, WrongDirection};
    let unknown =
        |action, field: &str| InvalidMessage::UnknownField { action, field: field.into() };
    let cases = [
        ("", G2, Blank),
        (" \t ", G2, Blank),
        ("null", G2, NotAnObject),
        ("[1]", G2, NotAnObject),
        ("42 is the answer", G2, NotAnObject),
        ("{}", G2, NoAction),
        (r#"{"action":null}"#, G2, NoAction),
        (r#"{"action":"dance"}"#, G2, InvalidMessage::UnknownAction("dance".into())),
        (r#"{"action":"processRecords","records":[]}"#, G2, WrongDirection("processRecords")),
        (r#"{"action":"checkpoint","checkpoint":"456"}"#, G2, unknown("checkpoint", "checkpoint")),
        (
            r#"{"action":"checkpoint","sequenceNumber":"456"}"#,
            G0,
            unknown("checkpoint", "sequenceNumber"),
        ),
        (
            r#"{"action":"checkpoint","sequenceNumber":"456","shard":1}"#,
            G1,
            unknown("checkpoint", "shard"),
        ),
        (
            r#"{"action":"status","responseFor":"initialize","sequenceNumber":null}"#,
            G2,
            unknown("status", "sequenceNumber"),
        ),
    ];
    for (line, generation, why) in cases {
        assert_eq!(FromChild::decode(line, generation), Err(why), "{line}");
    }

    for line in ["hello", "{", r#"{"action":"status""#, r#"{"action":"sta"#, "{'action':'status'}"]
    {
        let why = FromChild::decode(line, G2);
        assert!(matches!(why, Err(InvalidMessage::NotJson(_))), "{line}: {why:?}");
    }
    for field in ["[1]", "{}", r#""much""#, "1.5x", "true", "9223372036854775808"] {
        let line = format!(r#"{{"action":"checkpoint","subSequenceNumber":{field}}}"#);
        let why = FromChild::decode(&line, G2);
        assert!(why.is_err(), "{line}: {why:?}");
    }
}

#[test]
fn daemon_accepts_what_jackson_accepts() {
    let checkpoint = |number, place| Ok(FromChild::Checkpoint(asked(number, place)));
    let longest = "4".repeat(129);
    let cases = [
        // Children in some languages never send a sub-sequence number.
        (r#"{"action":"checkpoint","sequenceNumber":"456"}"#, checkpoint(Some("456"), None)),
        (r#"{"action":"checkpoint"}"#, checkpoint(None, None)),
        // The first field has a number in place of a text. The second field has a text in place of
        // a number.
        (
            r#"{"action":"checkpoint","sequenceNumber":456,"subSequenceNumber":"3"}"#,
            checkpoint(Some("456"), Some(3)),
        ),
        (
            &format!(r#"{{"action":"checkpoint","sequenceNumber":{longest}}}"#),
            checkpoint(Some(&longest), None),
        ),
        // The checkpointer refuses a sequence number that is not numeric.
        (
            r#"{"action":"checkpoint","sequenceNumber":"LATEST","subSequenceNumber":-1}"#,
            checkpoint(Some("LATEST"), Some(-1)),
        ),
        (
            r#"{"error":null,"sequenceNumber":"456","action":"checkpoint"}"#,
            checkpoint(Some("456"), None),
        ),
        // The last of two fields with the same name applies. Text after the object is ignored.
        (
            r#"{"action":"checkpoint","sequenceNumber":"1","sequenceNumber":"2"} and so on"#,
            checkpoint(Some("2"), None),
        ),
        (r#"{"action":"status"}"#, Ok(FromChild::Status { response_for: None })),
        (
            r#"	{ "responseFor" : "initialize" , "action" : "status" }  "#,
            Ok(FromChild::done(Action::Initialize)),
        ),
    ];

    for (line, message) in cases {
        assert_eq!(FromChild::decode(line, G2), message, "{line}");
    }
}

#[test]
fn child_reports_why_a_line_is_not_a_message() {
    use InvalidMessage::{Blank, NoAction, NotAnObject, WrongDirection};
    let cases = [
        ("", Blank),
        ("  ", Blank),
        ("7", NotAnObject),
        ("[\"initialize\"]", NotAnObject),
        ("{}", NoAction),
        (r#"{"action":"status","responseFor":"initialize"}"#, WrongDirection("status")),
        (r#"{"action":"dance"}"#, InvalidMessage::UnknownAction("dance".into())),
    ];
    for (line, why) in cases {
        assert_eq!(ToChild::decode(line), Err(why), "{line}");
    }

    for line in [
        r#"{"action":"initialize"}"#,
        r#"{"action":"processRecords"}"#,
        r#"{"action":"processRecords","records":[{"data":"!","partitionKey":"","sequenceNumber":"1"}]}"#,
        r#"{"action":"processRecords","records":[{"data":"","partitionKey":"","sequenceNumber":"x"}]}"#,
        r#"{"action":"processRecords","records":[{"data":"","sequenceNumber":"1"}]}"#,
        r#"{"action":"shutdown","reason":"REQUESTED"}"#,
        r#"{"action":"shutdown"}"#,
        r#"{"action":7}"#,
    ] {
        let why = ToChild::decode(line);
        assert!(matches!(why, Err(InvalidMessage::BadField { .. })), "{line}: {why:?}");
    }
    assert!(matches!(ToChild::decode("bogus"), Err(InvalidMessage::NotJson(_))));
}

#[test]
fn quoted_text_is_cut() {
    let long = "x".repeat(100_000);

    for line in [
        long.clone(),
        format!(r#"{{"action":"{long}"}}"#),
        format!(r#"{{"action":"status","{long}":1}}"#),
        format!(r#"{{"action":"checkpoint","subSequenceNumber":"{long}"}}"#),
        format!(r#"{{"action":"shutdown","reason":"{long}"}}"#),
    ] {
        for why in [FromChild::decode(&line, G2).err(), ToChild::decode(&line).err()] {
            assert!(why.is_none_or(|why| why.to_string().len() < 300));
        }
    }
}
