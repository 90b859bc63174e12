//! A processor of ours under a daemon that follows a script, in each generation.

use std::sync::Arc;

use async_trait::async_trait;
use lease_kinesis::multilang::child::{Child, ChildError, Ended};
use lease_kinesis::{Batch, Checkpointer, Outcome, ProcessorError, RecordProcessor, ShardContext};
use tokio::io::{AsyncWriteExt, duplex};

use crate::talk::{
    ASK, ASK_END, BEGIN, BEGIN_G0, KEPT, KEPT_END, LOST, Log, RECORDS, RECORDS_G0, SHUT_DOWN,
    THROTTLED, WORKED, same, talk, talk_with,
};

#[tokio::test(start_paused = true)]
async fn the_third_generation_from_beginning_to_end_with_a_throttled_checkpoint() {
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
async fn the_third_generation_stops_and_stays_until_the_lease_is_lost() {
    let stop = [
        r#"> {"action":"shutdownRequested"}"#,
        ASK,
        KEPT,
        r#"< {"action":"status","responseFor":"shutdownRequested"}"#,
    ];
    let script = [&BEGIN[..], &[RECORDS, WORKED], &stop, &LOST].concat();

    let talk = talk(&script, &[|| Outcome::Continue], same).await;

    assert!(matches!(talk.ended, Ok(Ended::LeaseLost)), "{:?}", talk.ended);
    assert_eq!(talk.log[2..], ["shutdown requested"], "its last words were said");
}

#[tokio::test(start_paused = true)]
async fn the_second_generation_ends_by_shutdown_in_the_words_of_each_version() {
    for (reason, is_end) in
        [("TERMINATE", true), ("SHARD_END", true), ("ZOMBIE", false), ("LEASE_LOST", false)]
    {
        let shutdown = format!(r#"> {{"action":"shutdown","reason":"{reason}"}}"#);
        let checkpoint = if is_end { &[ASK_END, KEPT_END][..] } else { &[] };
        let script = [&BEGIN[..], &[&*shutdown], checkpoint, &[SHUT_DOWN]].concat();

        let talk = talk(&script, &[], same).await;

        let (ended, told) = if is_end {
            (Ended::ShardEnd, "shard ended")
        } else {
            (Ended::LeaseLost, "lease lost")
        };
        assert_eq!(talk.ended.unwrap(), ended, "{reason}");
        assert_eq!(talk.log[1..], [told]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_generation_is_answered_in_its_own_words() {
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
    assert_eq!(talk.log[1], "records 456 behind None", "what is not told is not 0");
}

/// Notes all that it is told.
struct Curious(Log);

#[async_trait]
impl RecordProcessor for Curious {
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
async fn what_the_daemon_tells_is_passed_on_and_what_it_does_not_tell_is_not_zero() {
    let begin = BEGIN[0].replace("TRIM_HORIZON", "455").replace(":0}", ":3}");
    let told = RECORDS.replace(r#""subSequenceNumber":0"#, r#""subSequenceNumber":2"#);
    let told = told.replace(r#""millisBehindLatest":0"#, r#""millisBehindLatest":7"#);
    let untold = r#"> {"action":"processRecords","records":[{"data":null,"partitionKey":"cat","sequenceNumber":"457","approximateArrivalTimestamp":null,"subSequenceNumber":null,"action":"record"}],"millisBehindLatest":null}"#;
    let script = [&*begin, BEGIN[1], &*told, WORKED, untold, WORKED, LOST[0], LOST[1]];
    let log = Log::default();
    let of_processor = Arc::clone(&log);
    let child = Child::new(move |_: &ShardContext| Curious(Arc::clone(&of_processor)));

    let talk = talk_with(child, &script, log).await;

    assert_eq!(talk.ended.unwrap(), Ended::LeaseLost);
    let told = [
        "at 455+3",
        "behind Some(7ms)",
        "456+2 Some(1476889707000) b\"meow\"",
        "behind None",
        "457 None b\"\"",
        "lease lost",
    ];
    assert_eq!(talk.log, told);
}

#[tokio::test(start_paused = true)]
async fn a_last_line_whose_end_is_missing_was_said_and_half_of_one_was_not() {
    for (last, heard) in [(LOST[0], true), (&LOST[0][..20], false)] {
        let log = Log::default();
        let of_processor = Arc::clone(&log);
        let child = Child::new(move |_: &ShardContext| Curious(Arc::clone(&of_processor)));
        let (mut says, input) = duplex(4096);
        let (output, _hears) = duplex(4096);
        let lines = format!("{}\n{}", &BEGIN[0][2..], &last[2..]);
        says.write_all(lines.as_bytes()).await.unwrap();
        drop(says);

        let ended = child.run_over(input, output).await;

        let log = log.lock().unwrap();
        assert_eq!(log.contains(&"lease lost".to_owned()), heard, "{last}: {log:?}");
        match ended {
            Ok(Ended::LeaseLost) => assert!(heard),
            Err(ChildError::Gone { .. }) => assert!(!heard),
            other => panic!("{last}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_of_the_pipe_is_quiet_between_actions_and_an_error_within() {
    let all = [&BEGIN[..], &[RECORDS, ASK, KEPT, WORKED]].concat();

    for length in 0..=all.len() {
        let talk = talk(&all[..length], &[], same).await;

        match length {
            0 | 2 | 6 => assert_eq!(talk.ended.unwrap(), Ended::InputEnded, "{length}"),
            // What was left to be done may have been done before the end of the pipe was read.
            1 | 5 => {
                let ended = talk.ended;
                assert!(matches!(ended, Ok(Ended::InputEnded) | Err(ChildError::Gone { .. })));
            }
            _ => assert!(matches!(talk.ended, Err(ChildError::Gone { .. })), "{:?}", talk.ended),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_said_out_of_turn_ends_the_talk_with_an_error() {
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
async fn blank_lines_are_passed_over_and_other_lines_that_are_no_message_are_errors() {
    let blank = [&BEGIN[..], &["> ", "> \t\r"], &LOST].concat();
    assert_eq!(talk(&blank, &[], same).await.ended.unwrap(), Ended::LeaseLost);

    for line in ["> hello", r#"> {"action":"dance"}"#, r#"> {"action":"status","responseFor":""}"#]
    {
        let ended = talk(&[&BEGIN[..], &[line]].concat(), &[], same).await.ended;
        assert!(matches!(ended, Err(ChildError::NotAMessage(_))), "{line}: {ended:?}");
    }
    let too_long = [&BEGIN[..], &[RECORDS]].concat();
    let ended = talk(&too_long, &[], |child| child.with_longest_line(150)).await.ended;
    assert!(matches!(ended, Err(ChildError::TooLong(_))), "{ended:?}");
}
