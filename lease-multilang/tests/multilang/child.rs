//! Runs a child of this library under a scripted daemon of each generation of the protocol.

use std::sync::Arc;

use async_trait::async_trait;
use lease_kinesis::{Batch, Checkpointer, Outcome, ProcessorError, RecordProcessor, ShardContext};
use lease_multilang::child::{Child, ChildError, Ended};
use tokio::io::{AsyncWriteExt, duplex};

use crate::talk::{
    ASK, ASK_END, BEGIN, BEGIN_G0, KEPT, KEPT_END, LOST, Log, RECORDS, RECORDS_G0, SHUT_DOWN,
    THROTTLED, WORKED, same, talk, talk_with,
};

#[tokio::test(start_paused = true)]
async fn third_generation_session_with_a_throttled_checkpoint() {
    let end = [
        r#"> {"action":"shardEnded"}"#,
        ASK_END,
        KEPT_END,
        r#"< {"action":"status","responseFor":"shardEnded"}"#,
    ];
    let script = [&BEGIN[..], &[RECORDS, ASK, THROTTLED, ASK, KEPT, WORKED], &end].concat();

    let talk = talk(&script, &[], same).await;

    assert!(matches!(talk.ended, Ok(Ended::ShardEnd)), "{:?}", talk.ended);
    assert_eq!(
        talk.log,
        ["initialize shardId-0 at TRIM_HORIZON", "records 456 behind Some(0ns)", "shard ended"]
    );
    assert_eq!(talk.rest, "");
}

#[tokio::test(start_paused = true)]
async fn third_generation_child_stays_until_lease_lost() {
    let stop = [
        r#"> {"action":"shutdownRequested"}"#,
        ASK,
        KEPT,
        r#"< {"action":"status","responseFor":"shutdownRequested"}"#,
    ];
    let script = [&BEGIN[..], &[RECORDS, WORKED], &stop, &LOST].concat();

    let talk = talk(&script, &[|| Outcome::Continue], same).await;

    assert!(matches!(talk.ended, Ok(Ended::LeaseLost)), "{:?}", talk.ended);
    assert_eq!(talk.log[2..], ["shutdown requested"], "lease_lost was called too");
}

#[tokio::test(start_paused = true)]
async fn second_generation_ends_by_each_shutdown_reason() {
    for (reason, is_end) in
        [("TERMINATE", true), ("SHARD_END", true), ("ZOMBIE", false), ("LEASE_LOST", false)]
    {
        let shutdown = format!(r#"> {{"action":"shutdown","reason":"{reason}"}}"#);
        let checkpoint = if is_end { &[ASK_END, KEPT_END][..] } else { &[] };
        let script = [&BEGIN[..], &[&*shutdown], checkpoint, &[SHUT_DOWN]].concat();

        let talk = talk(&script, &[], same).await;

        let (ended, called) = if is_end {
            (Ended::ShardEnd, "shard ended")
        } else {
            (Ended::LeaseLost, "lease lost")
        };
        assert_eq!(talk.ended.unwrap(), ended, "{reason}");
        assert_eq!(talk.log[1..], [called]);
    }
}

#[tokio::test(start_paused = true)]
async fn first_generation_uses_its_own_messages() {
    let script = [
        BEGIN_G0,
        BEGIN[1],
        RECORDS_G0,
        r#"< {"action":"checkpoint","checkpoint":"456"}"#,
        r#"> {"action":"checkpoint","checkpoint":"456","error":null}"#,
        WORKED,
        r#"> {"action":"shutdown","reason":"TERMINATE"}"#,
        r#"< {"action":"checkpoint","checkpoint":null}"#,
        r#"> {"action":"checkpoint","checkpoint":null,"error":null}"#,
        SHUT_DOWN,
    ];

    let talk = talk(&script, &[], same).await;

    assert_eq!(talk.ended.unwrap(), Ended::ShardEnd);
    assert_eq!(talk.log[1], "records 456 behind None", "a missing field is None");
}

struct RecordsArguments(Log);

#[async_trait]
impl RecordProcessor for RecordsArguments {
    async fn initialize(&mut self, shard: &ShardContext) -> Result<(), ProcessorError> {
        self.0.lock().unwrap().push(format!("at {}", shard.position));
        Ok(())
    }

    async fn process_records(&mut self, batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        let mut log = self.0.lock().unwrap();
        log.push(format!("behind {:?}", batch.behind));
        for record in &batch.records {
            log.push(format!("{} {:?} {:?}", record.number, record.arrived, record.data));
        }
        Outcome::Continue
    }

    async fn lease_lost(&mut self) {
        self.0.lock().unwrap().push("lease lost".into());
    }
}

#[tokio::test(start_paused = true)]
async fn missing_fields_of_a_message_are_none_and_not_zero() {
    let begin = BEGIN[0].replace("TRIM_HORIZON", "455").replace(":0}", ":3}");
    let complete = RECORDS.replace(r#""subSequenceNumber":0"#, r#""subSequenceNumber":2"#);
    let complete = complete.replace(r#""millisBehindLatest":0"#, r#""millisBehindLatest":7"#);
    let with_nulls = r#"> {"action":"processRecords","records":[{"data":null,"partitionKey":"cat","sequenceNumber":"457","approximateArrivalTimestamp":null,"subSequenceNumber":null,"action":"record"}],"millisBehindLatest":null}"#;
    let script = [&*begin, BEGIN[1], &*complete, WORKED, with_nulls, WORKED, LOST[0], LOST[1]];
    let log = Log::default();
    let of_processor = Arc::clone(&log);
    let child = Child::new(move |_: &ShardContext| RecordsArguments(Arc::clone(&of_processor)));

    let talk = talk_with(child, &script, log).await;

    assert_eq!(talk.ended.unwrap(), Ended::LeaseLost);
    let expected = [
        "at 455+3",
        "behind Some(7ms)",
        "456+2 Some(1476889707000) b\"meow\"",
        "behind None",
        "457 None b\"\"",
        "lease lost",
    ];
    assert_eq!(talk.log, expected);
}

#[tokio::test(start_paused = true)]
async fn last_line_without_line_feed_is_read_if_complete() {
    for (last, is_complete) in [(LOST[0], true), (&LOST[0][..20], false)] {
        let log = Log::default();
        let of_processor = Arc::clone(&log);
        let child = Child::new(move |_: &ShardContext| RecordsArguments(Arc::clone(&of_processor)));
        let (mut to_child, input) = duplex(4096);
        let (output, _from_child) = duplex(4096);
        let lines = format!("{}\n{}", &BEGIN[0][2..], &last[2..]);
        to_child.write_all(lines.as_bytes()).await.unwrap();
        drop(to_child);

        let ended = child.run_over(input, output).await;

        let log = log.lock().unwrap();
        assert_eq!(log.contains(&"lease lost".to_owned()), is_complete, "{last}: {log:?}");
        match ended {
            Ok(Ended::LeaseLost) => assert!(is_complete),
            Err(ChildError::Gone { .. }) => assert!(!is_complete),
            other => panic!("{last}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn closed_pipe_is_an_error_only_within_an_action() {
    let all = [&BEGIN[..], &[RECORDS, ASK, KEPT, WORKED]].concat();

    for length in 0..=all.len() {
        let talk = talk(&all[..length], &[], same).await;

        match length {
            0 | 2 | 6 => assert_eq!(talk.ended.unwrap(), Ended::InputEnded, "{length}"),
            // The child may write its answer before it reads the end of the pipe.
            1 | 5 => {
                let ended = talk.ended;
                assert!(matches!(ended, Ok(Ended::InputEnded) | Err(ChildError::Gone { .. })));
            }
            _ => assert!(matches!(talk.ended, Err(ChildError::Gone { .. })), "{:?}", talk.ended),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn message_out_of_turn_ends_the_session() {
    for line in [KEPT, BEGIN[0]] {
        let talk = talk(&[&BEGIN[..], &[line]].concat(), &[], same).await;
        assert!(matches!(talk.ended, Err(ChildError::OutOfTurn { .. })), "{:?}", talk.ended);
    }
    let in_place_of_reply = [&BEGIN[..], &[RECORDS, ASK, RECORDS]].concat();
    let talk_ended = talk(&in_place_of_reply, &[], same).await.ended;
    assert!(matches!(talk_ended, Err(ChildError::OutOfTurn { .. })), "{talk_ended:?}");

    let other = KEPT.replace("456", "455");
    let to_another = [&BEGIN[..], &[RECORDS, ASK, &*other]].concat();
    let talk_ended = talk(&to_another, &[], same).await.ended;
    assert!(matches!(talk_ended, Err(ChildError::OtherReply { .. })), "{talk_ended:?}");
}

#[tokio::test(start_paused = true)]
async fn invalid_lines_are_errors_and_blank_lines_are_not() {
    let blank = [&BEGIN[..], &["> ", "> \t\r"], &LOST].concat();
    assert_eq!(talk(&blank, &[], same).await.ended.unwrap(), Ended::LeaseLost);

    for line in ["> hello", r#"> {"action":"dance"}"#, r#"> {"action":"status","responseFor":""}"#]
    {
        let ended = talk(&[&BEGIN[..], &[line]].concat(), &[], same).await.ended;
        assert!(matches!(ended, Err(ChildError::InvalidMessage(_))), "{line}: {ended:?}");
    }
    let too_long = [&BEGIN[..], &[RECORDS]].concat();
    let ended = talk(&too_long, &[], |child| child.with_max_line(150)).await.ended;
    assert!(matches!(ended, Err(ChildError::TooLong(_))), "{ended:?}");
}
