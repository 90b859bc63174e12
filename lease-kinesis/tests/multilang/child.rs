//! A processor of ours under a daemon that follows a script, in each generation.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_kinesis::multilang::child::{Child, ChildError, Ended, OnStop};
use lease_kinesis::{
    Batch, CheckpointError, Checkpointer, Outcome, ProcessorError, RecordProcessor, ShardContext,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::time::sleep;

/// What a processor was told, and came to.
type Log = Arc<Mutex<Vec<String>>>;

/// Checkpoints after each batch, unless it is to answer something else.
struct Scripted {
    log: Log,
    answers: VecDeque<fn() -> Outcome>,
    checkpoints_end: bool,
}

#[async_trait]
impl RecordProcessor for Scripted {
    async fn initialize(&mut self, shard: &ShardContext) -> Result<(), ProcessorError> {
        assert_eq!(shard.token, None, "no daemon has one to tell");
        self.note(format!("initialize {} at {}", shard.shard, shard.position));
        Ok(())
    }

    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        let records = batch.records.iter().map(|record| record.number.to_string());
        let records: Vec<_> = records.collect();
        self.note(format!("records {} behind {:?}", records.join(" "), batch.behind));
        if let Some(answer) = self.answers.pop_front() {
            return answer();
        }
        let kept = checkpointer.checkpoint().await;
        self.note_checkpoint(kept);
        Outcome::Continue
    }

    async fn lease_lost(&mut self) {
        self.note("lease lost".into());
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        self.note("shard ended".into());
        if self.checkpoints_end {
            checkpointer.checkpoint().await?;
        }
        Ok(())
    }

    async fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        self.note("shutdown requested".into());
        let kept = checkpointer.checkpoint().await;
        self.note_checkpoint(kept);
        Ok(())
    }
}

impl Scripted {
    fn note(&self, what: String) {
        self.log.lock().unwrap().push(what);
    }

    fn note_checkpoint(&self, kept: Result<(), CheckpointError>) {
        match kept {
            Ok(()) => (),
            Err(CheckpointError::Store(error)) => {
                self.note(format!("not kept: {}", std::error::Error::source(&error).unwrap()));
            }
            Err(error) => self.note(format!("not kept: {error}")),
        }
    }
}

/// What came of a talk.
struct Talk {
    /// How the child ended.
    ended: Result<Ended, ChildError>,
    log: Vec<String>,
    /// What it wrote after the script.
    rest: String,
}

/// Has a child talk with a daemon that follows `script`: `> ` before what the daemon says, `< `
/// before what the child is to say, byte for byte, `~` where a second passes; then the daemon closes
/// the pipe.
async fn talk(
    script: &[&str],
    answers: &[fn() -> Outcome],
    set: impl FnOnce(Child) -> Child,
) -> Talk {
    let log = Log::default();
    let of_processor = Arc::clone(&log);
    let answers: Vec<_> = answers.to_vec();
    let child = set(Child::new(move |_: &ShardContext| Scripted {
        log: Arc::clone(&of_processor),
        answers: answers.clone().into(),
        checkpoints_end: true,
    }));
    talk_with(child, script, log).await
}

async fn talk_with(child: Child, script: &[&str], log: Log) -> Talk {
    let (mut says, input) = duplex(1024 * 1024);
    let (output, mut hears) = duplex(1024 * 1024);
    let daemon = async {
        for line in script {
            if *line == "~" {
                sleep(Duration::from_secs(1)).await;
                continue;
            }
            let (who, text) = line.split_at(2);
            if who == "> " {
                says.write_all(format!("{text}\n").as_bytes()).await.unwrap();
                continue;
            }
            let mut said = vec![0; text.len() + 2];
            hears.read_exact(&mut said).await.unwrap();
            assert_eq!(String::from_utf8(said).unwrap(), format!("\n{text}\n"));
        }
        drop(says);
        let mut rest = String::new();
        hears.read_to_string(&mut rest).await.unwrap();
        rest
    };
    let (ended, rest) = tokio::join!(child.run_over(input, output), daemon);
    let log = log.lock().unwrap().clone();
    Talk { ended, log, rest }
}

const BEGIN: [&str; 2] = [
    r#"> {"action":"initialize","shardId":"shardId-0","sequenceNumber":"TRIM_HORIZON","subSequenceNumber":0}"#,
    r#"< {"action":"status","responseFor":"initialize"}"#,
];
const BEGIN_G0: &str = r#"> {"action":"initialize","shardId":"shardId-0"}"#;
const RECORDS: &str = r#"> {"action":"processRecords","records":[{"data":"bWVvdw==","partitionKey":"cat","sequenceNumber":"456","approximateArrivalTimestamp":1476889707000,"subSequenceNumber":0,"action":"record"}],"millisBehindLatest":0}"#;
const RECORDS_G0: &str = r#"> {"action":"processRecords","records":[{"data":"bWVvdw==","partitionKey":"cat","sequenceNumber":"456"}]}"#;
const ASK: &str = r#"< {"action":"checkpoint","sequenceNumber":"456","subSequenceNumber":0}"#;
const KEPT: &str =
    r#"> {"action":"checkpoint","sequenceNumber":"456","subSequenceNumber":0,"error":null}"#;
const THROTTLED: &str = r#"> {"action":"checkpoint","sequenceNumber":"456","subSequenceNumber":0,"error":"ThrottlingException"}"#;
const WORKED: &str = r#"< {"action":"status","responseFor":"processRecords"}"#;
const ASK_END: &str = r#"< {"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null}"#;
const KEPT_END: &str =
    r#"> {"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null,"error":null}"#;
const SHUT_DOWN: &str = r#"< {"action":"status","responseFor":"shutdown"}"#;
const LOST: [&str; 2] =
    [r#"> {"action":"leaseLost"}"#, r#"< {"action":"status","responseFor":"leaseLost"}"#];

fn same(child: Child) -> Child {
    child
}

fn failed() -> Outcome {
    Outcome::Failed("no disk".into())
}

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

#[tokio::test(start_paused = true)]
async fn a_refused_checkpoint_is_told_by_its_name_and_the_talk_goes_on() {
    for (name, told) in [
        (
            "ShutdownException",
            "not kept: the lease on the shard is lost: it was ended from outside",
        ),
        ("InvalidStateException", "not kept: InvalidStateException"),
        ("NullPointerException", "not kept: NullPointerException"),
    ] {
        let refused = KEPT.replace("null", &format!("\"{name}\""));
        let script = [&BEGIN[..], &[RECORDS, ASK, &*refused, WORKED], &LOST].concat();

        let talk = talk(&script, &[], same).await;

        assert_eq!(talk.ended.unwrap(), Ended::LeaseLost, "{name}");
        assert_eq!(talk.log[2], told);
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_is_throttled_is_not_tried_for_ever() {
    let script = [&BEGIN[..], &[RECORDS, ASK, THROTTLED, ASK, THROTTLED, WORKED], &LOST].concat();

    let talk = talk(&script, &[], |child| child.with_checkpoint_attempts(2)).await;

    assert_eq!(talk.ended.unwrap(), Ended::LeaseLost);
    assert_eq!(talk.log[2], "not kept: ThrottlingException");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_fails_is_tried_again_before_its_status() {
    let script = [&BEGIN[..], &[RECORDS, ASK, KEPT, WORKED], &LOST].concat();

    let talk = talk(&script, &[failed, || Outcome::Retry(Duration::from_hours(1))], same).await;

    assert_eq!(talk.ended.unwrap(), Ended::LeaseLost);
    assert_eq!(talk.log[1..4], ["records 456 behind Some(0ns)"; 3]);
}

/// Fails once, and checkpoints from another task while the batch waits for its next try.
struct Hasty {
    has_failed: bool,
}

#[async_trait]
impl RecordProcessor for Hasty {
    async fn process_records(&mut self, _batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        if std::mem::replace(&mut self.has_failed, true) {
            return Outcome::Continue;
        }
        let checkpointer = checkpointer.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(1)).await;
            checkpointer.checkpoint().await
        });
        failed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_failed_is_not_passed_by_a_checkpoint_of_another_task() {
    let script = [&BEGIN[..], &[RECORDS, WORKED], &LOST].concat();
    let child = Child::new(|_: &ShardContext| Hasty { has_failed: false });

    let talk = talk_with(child, &script, Log::default()).await;

    assert_eq!(talk.ended.unwrap(), Ended::LeaseLost);
    assert_eq!(talk.rest, "");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_keeps_failing_ends_the_child_without_a_status() {
    let script = [&BEGIN[..], &[RECORDS]].concat();
    let log = Log::default();
    let of_processor = Arc::clone(&log);
    let child = Child::new(move |_: &ShardContext| Scripted {
        log: Arc::clone(&of_processor),
        answers: [failed as fn() -> Outcome; 2].into(),
        checkpoints_end: true,
    });
    let (mut says, input) = duplex(4096);
    let (output, mut hears) = duplex(4096);
    for line in script.iter().filter_map(|line| line.strip_prefix("> ")) {
        says.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    let ended = child.with_attempts(2).run_over(input, output).await;

    assert!(matches!(ended, Err(ChildError::Batch { attempts: 2, .. })), "{ended:?}");
    let mut said = String::new();
    hears.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, format!("\n{}\n", &BEGIN[1][2..]), "nothing is said of the batch");
}

#[tokio::test(start_paused = true)]
async fn a_processor_that_wants_to_stop_is_passed_over_only_where_that_is_wanted() {
    let script = [&BEGIN[..], &[RECORDS, WORKED], &LOST].concat();
    let stop: [fn() -> Outcome; 1] = [|| Outcome::StopShard("enough".into())];

    let talk = talk(&script, &stop, |child| child.on_stop(OnStop::Pass)).await;

    assert_eq!(talk.ended.unwrap(), Ended::LeaseLost);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_not_checkpointed_is_an_error() {
    let log = Log::default();
    let of_processor = Arc::clone(&log);
    let child = Child::new(move |_: &ShardContext| Scripted {
        log: Arc::clone(&of_processor),
        answers: VecDeque::new(),
        checkpoints_end: false,
    });
    let (mut says, input) = duplex(4096);
    let (output, _hears) = duplex(4096);
    let lines = format!("{}\n{{\"action\":\"shardEnded\"}}\n", &BEGIN[0][2..]);
    says.write_all(lines.as_bytes()).await.unwrap();

    let ended = child.with_attempts(3).run_over(input, output).await;

    assert!(matches!(ended, Err(ChildError::EndNotCheckpointed(_))), "{ended:?}");
    assert_eq!(log.lock().unwrap()[1..], ["shard ended"; 3]);
}

/// Checkpoints the end, and leaves it to others whether that is kept.
struct Calm(Log);

#[async_trait]
impl RecordProcessor for Calm {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        self.0.lock().unwrap().push("shard ended".into());
        drop(checkpointer.checkpoint().await);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_the_store_did_not_keep_is_asked_for_again_and_the_processor_is_told_once() {
    let failed = KEPT_END.replace(r#""error":null"#, r#""error":"InvalidStateException""#);
    let end = [
        r#"> {"action":"shardEnded"}"#,
        ASK_END,
        &*failed,
        ASK_END,
        &*failed,
        ASK_END,
        KEPT_END,
        r#"< {"action":"status","responseFor":"shardEnded"}"#,
    ];
    let log = Log::default();
    let of_processor = Arc::clone(&log);
    let child = Child::new(move |_: &ShardContext| Calm(Arc::clone(&of_processor)));

    let talk = talk_with(child, &[&BEGIN[..], &end].concat(), log).await;

    assert_eq!(talk.ended.unwrap(), Ended::ShardEnd);
    assert_eq!(talk.log, ["shard ended"]);
    assert_eq!(talk.rest, "");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_the_store_never_keeps_ends_the_child_without_a_status() {
    let failed = KEPT_END.replace(r#""error":null"#, r#""error":"InvalidStateException""#);
    let asked = [ASK_END, &*failed];
    // By the processor; and in its place, once and once more.
    let end = [&[r#"> {"action":"shardEnded"}"#][..], &asked, &asked, &asked, &["~"]].concat();
    let log = Log::default();
    let of_processor = Arc::clone(&log);
    let child = Child::new(move |_: &ShardContext| Calm(Arc::clone(&of_processor)));

    let talk = talk_with(child.with_attempts(2), &[&BEGIN[..], &end[..]].concat(), log).await;

    let ended = talk.ended;
    assert!(matches!(ended, Err(ChildError::EndNotCheckpointed(_))), "{ended:?}");
    assert_eq!(talk.log, ["shard ended"]);
    assert_eq!(talk.rest, "", "nothing is said of the end");
}

/// Has a task that checkpoints half a second after the first batch.
struct Leisurely {
    has_begun: bool,
}

#[async_trait]
impl RecordProcessor for Leisurely {
    async fn process_records(&mut self, _batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        if !std::mem::replace(&mut self.has_begun, true) {
            let checkpointer = checkpointer.clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(500)).await;
                checkpointer.checkpoint().await
            });
        }
        Outcome::Continue
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_is_asked_for_between_two_actions_is_asked_once_and_by_its_number() {
    let [second, third] = ["457", "458"].map(|number| RECORDS.replace("456", number));
    let script = [
        &BEGIN[..],
        &[RECORDS, WORKED, "~", &*second, ASK, KEPT, WORKED],
        // Whatever is said then, nothing more is asked for.
        &["~", &*third, WORKED, "~"],
        &LOST,
    ];
    let child = Child::new(|_: &ShardContext| Leisurely { has_begun: false });

    let talk = talk_with(child, &script.concat(), Log::default()).await;

    assert_eq!(talk.ended.unwrap(), Ended::LeaseLost);
    assert_eq!(talk.rest, "");
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
