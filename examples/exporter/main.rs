//! Several schedulers export the events of a file. One scheduler is killed while it sends. Another
//! scheduler continues, and every event arrives.
//!
//! On memory, each scheduler has its own thread and runtime. On Redis, each scheduler is a process,
//! and SIGKILL kills it.

mod schedulers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};
use lease_examples::counts;
use lease_examples::export_parts::{open, open_sink};
use lease_examples::orders::{FileDeadLetters, FileSink, Orders, compare, read};
use lease_examples::{Failure, Timeline, exit, print_line};
use lease_export::{
    Appended, Deleted, Event, Exported, Exporter, Flushed, Intake, Operator, PutIn, Refusal,
    Scheduled, StopCause, Worked,
};
use tokio::select;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::schedulers::{Scheduler, run_scheduler};

/// Exports the events of a file while one scheduler is killed. With a subcommand, runs this command of an
/// operator instead.
#[derive(Debug, Clone, Parser)]
struct Arguments {
    /// The store of leases, jobs and events: memory, or redis://HOST:PORT.
    #[arg(long, default_value = "memory", global = true)]
    store: String,
    /// A sink in AWS: kinesis:NAME or firehose:NAME. Without this option, events go to a file.
    #[arg(long, value_name = "ADDRESS", global = true)]
    sink: Option<String>,
    /// The ttl of a lease, in seconds.
    #[arg(
        long,
        default_value_t = 1.0,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        global = true
    )]
    ttl: f64,
    /// A file with one JSON event per line. Without it, 240 built-in orders are used.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// The number of schedulers, 2 to 20.
    #[arg(long, default_value_t = 3, value_name = "NUMBER")]
    schedulers: usize,
    #[command(subcommand)]
    command: Option<Command>,
}

/// The commands of an operator.
#[derive(Debug, Clone, Subcommand)]
enum Command {
    /// Enables export.
    Enable,
    /// Disables export, unless the intake is open.
    Disable,
    /// Puts a count into the current bucket, unless the intake is stopped.
    Put {
        /// The key: ITEM/PERIOD, such as tea/hour.
        key: String,
        /// The count. An export drops and reports a value that is not a count.
        #[arg(allow_negative_numbers = true)]
        count: String,
    },
    /// Lists the buckets that are not exported yet.
    List,
    /// Schedules a job and runs it. The job collects closed buckets and sends all pending events.
    Send,
    /// Opens the intake, unless export is disabled.
    Open,
    /// Stops the intake.
    Stop,
    /// Prints the number of pending events.
    Pending,
    /// Sends pending events now.
    Flush {
        /// The maximum number of events. Without a maximum, all events are sent.
        #[arg(value_parser = limit, allow_negative_numbers = true)]
        limit: Option<u64>,
    },
    /// Prints whether the intake is open, and whether a full buffer or full buckets stopped it.
    Emergency,
    /// Stops the intake, and deletes all buckets and pending events.
    Delete,
    /// Runs one scheduler until its standard input ends.
    #[command(hide = true)]
    Scheduler {
        /// The scheduler's name.
        name: String,
        /// The file of the sink.
        file: PathBuf,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command.clone() {
        None => run(arguments).await,
        Some(Command::Scheduler { name, file }) => run_scheduler(arguments, name, file).await,
        Some(command) => operate(arguments, command).await,
    };
    exit("exporter", outcome)
}

async fn operate(arguments: Arguments, command: Command) -> Result<ExitCode, Failure> {
    let print: Print = Arc::new(print_line);
    let exporter = exporter(&arguments, "operator", Path::new("exported.ndjson"), print).await?;
    let operator = Operator::new(&exporter);
    let (line, code) = match command {
        Command::Enable => {
            operator.enable().await?;
            done("export is enabled")
        }
        Command::Disable => unless_refused(operator.disable().await?, "export is disabled"),
        Command::Put { key, count } => put(&exporter, &key, &count).await?,
        Command::List => {
            let buckets = operator.list().await?;
            for (bucket, keys) in &buckets {
                print_line(format_args!("bucket {}: {keys} keys", bucket.time_gen()));
            }
            done(format!("{} buckets", buckets.len()))
        }
        Command::Send => done(send(&exporter).await?),
        Command::Open => unless_refused(operator.open_intake().await?, "the intake is open"),
        Command::Stop => {
            operator.stop_intake().await?;
            done("the intake is stopped")
        }
        Command::Pending => done(format!("{} events are pending", operator.pending().await?)),
        Command::Flush { limit } => match operator.flush(limit).await? {
            Flushed::Done(exported) => sent(&exported),
            Flushed::Held(holder) => nothing_sent(&format!("{} exports", holder.lessee)),
            _ => nothing_sent("export is disabled"),
        },
        Command::Emergency => done(match operator.intake().await? {
            Intake::Stopped(StopCause::Operator) if operator.is_emergency().await? => {
                "the intake is stopped by an operator, and the buffer is full".to_owned()
            }
            Intake::Open => "the intake is open".to_owned(),
            Intake::Stopped(cause) => format!("the intake is stopped: {cause:?}"),
        }),
        Command::Delete => match operator.delete().await? {
            Deleted::Done(count) => done(format!("{count} buckets and events were deleted")),
            Deleted::Held(holder) => {
                let stopped = "the intake is stopped, but nothing was deleted";
                (format!("refused: {stopped}: {} has the lease", holder.lessee), ExitCode::FAILURE)
            }
        },
        Command::Scheduler { .. } => return Err("`scheduler` is not an operator's command".into()),
    };
    print_line(line);
    Ok(code)
}

fn done(line: impl Into<String>) -> (String, ExitCode) {
    (line.into(), ExitCode::SUCCESS)
}

fn unless_refused(answer: Result<(), Refusal>, line: &str) -> (String, ExitCode) {
    match answer {
        Ok(()) => done(line),
        Err(refusal) => (format!("refused: {refusal}"), ExitCode::FAILURE),
    }
}

async fn put(exporter: &Exporter, key: &str, count: &str) -> Result<(String, ExitCode), Failure> {
    let buckets = exporter.buckets().ok_or("there are no buckets")?;
    Ok(match buckets.put(&[(key, Some(count))]).await? {
        PutIn::Bucket(bucket) => done(format!("{key} is in bucket {}", bucket.time_gen())),
        PutIn::Stopped(_) => (format!("refused: {key}, the intake is stopped"), ExitCode::FAILURE),
    })
}

fn sent(exported: &Exported) -> (String, ExitCode) {
    let sent = format!("{} events were sent", exported.sent);
    match (exported.failed, &exported.sink_error) {
        (0, None) => (sent, ExitCode::SUCCESS),
        (failed, None) => (format!("{sent}, {failed} stay pending"), ExitCode::FAILURE),
        (_, Some(error)) => (
            format!("{sent}, others stay pending: {}", lease_examples::sentence(error)),
            ExitCode::FAILURE,
        ),
    }
}

fn nothing_sent(reason: &str) -> (String, ExitCode) {
    (format!("0 events were sent: {reason}"), ExitCode::FAILURE)
}

/// Schedules a job, as a cron job would, and runs the job, as a worker on another machine would.
async fn send(exporter: &Exporter) -> Result<String, Failure> {
    let scheduled = match exporter.schedule_job().await? {
        Scheduled::Enqueued(id) => id,
        Scheduled::Held(holder) => {
            return Ok(format!("no job was scheduled: {} exports", holder.lessee));
        }
        _ => return Ok("no job was scheduled: export is disabled".to_owned()),
    };
    loop {
        let worked = exporter.run_next_job(PACE).await?;
        match &worked {
            Worked::Done(id, exported) if *id == scheduled => {
                return Ok(format!(
                    "{worked}, {} came from buckets, {} were dropped, {} failed",
                    exported.collected, exported.bad, exported.failed
                ));
            }
            Worked::Idle => return Ok(format!("job {scheduled} runs in another process")),
            // The queue delivers the job of a killed process again.
            _ => print_line(worked),
        }
    }
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if !(2..=MAX_SCHEDULERS).contains(&arguments.schedulers) {
        let range = format!("2 to {MAX_SCHEDULERS}, since one is killed and another continues");
        return Err(format!("{} schedulers are out of range: {range}", arguments.schedulers).into());
    }
    let orders = read(arguments.events.as_deref())?;
    let file = std::env::temp_dir().join(format!("exported-{}.ndjson", std::process::id()));
    let silent: Print = Arc::new(drop);
    let exporter = exporter(&arguments, "producer", &file, silent).await?;
    let pending = exporter.num_pending_events().await?;
    if pending > 0 {
        return Err(format!("{pending} events are already pending: flush them first").into());
    }
    exporter.enable().await?;

    let (output, lines) = mpsc::unbounded_channel();
    let mut fleet = Vec::new();
    for number in 1..=arguments.schedulers {
        fleet.push(Scheduler::start(&arguments, format!("scheduler-{number}"), &file, &output)?);
    }
    drop(output);
    let fleet = export(&exporter, &orders, fleet, lines).await?;
    for scheduler in fleet {
        scheduler.stop().await?;
    }
    verdict(&arguments, &orders, &file)
}

/// Appends all events, and kills the scheduler that sends the fourth request. Returns the other
/// schedulers when no event is pending.
async fn export(
    exporter: &Exporter,
    orders: &Orders,
    mut fleet: Vec<Scheduler>,
    mut lines: mpsc::UnboundedReceiver<(String, String)>,
) -> Result<Vec<Scheduler>, Failure> {
    let timeline = Timeline::start();
    for refused in &orders.refused {
        timeline.print("producer", None, format_args!("drops {refused}"));
    }
    let mut producing = Box::pin(produce(exporter, &orders.events));
    let mut requests = 0;
    let mut is_produced = false;
    loop {
        select! {
            biased;
            Some((name, line)) = lines.recv() => {
                timeline.print(&name, None, &line);
                requests += u32::from(line.contains("sends"));
                // The scheduler dies before it removes the sent events from the buffer.
                if requests == KILLED_AT
                    && line.contains("sends")
                    && let Some(index) = fleet.iter().position(|it| it.name == name)
                {
                    fleet.swap_remove(index).kill().await;
                    timeline.print(&name, None, "KILLED while it sends");
                }
            }
            produced = &mut producing, if !is_produced => {
                produced?;
                is_produced = true;
                let count = orders.events.len();
                timeline.print("producer", None, format_args!("{count} events appended"));
            }
            () = sleep(POLL) => {
                let pending = exporter.num_pending_events().await?;
                if is_produced && pending == 0 {
                    return Ok(fleet);
                }
                if lines.is_closed() {
                    return Err(format!("no scheduler is left, {pending} events are pending").into());
                }
            }
        }
    }
}

fn verdict(arguments: &Arguments, orders: &Orders, file: &Path) -> Result<ExitCode, Failure> {
    let too_large = dead_letters_of(file);
    let arrivals = compare(&orders.events, file, &too_large)?;
    drop(std::fs::remove_file(file));
    let dropped = match (orders.refused.len(), arrivals.too_large) {
        (0, 0) => String::new(),
        (refused, 0) => format!("; dropped: {refused} that are not events"),
        (refused, large) => format!(
            "; dropped: {refused} that are not events, {large} that are too large, in {}",
            too_large.display()
        ),
    };
    let complete = if dropped.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if let Some(sink) = &arguments.sink {
        let accepted = orders.events.len() - arrivals.too_large;
        print_line(format_args!("verdict: {sink} accepted {accepted} events{dropped}"));
        return Ok(complete);
    }
    let (verdict, code) = if arrivals.missing == 0 && arrivals.foreign == 0 {
        ("every event arrived", complete)
    } else {
        ("FAILED", ExitCode::FAILURE)
    };
    print_line(format_args!(
        "verdict: {verdict}; arrived: {}, missing: {}, repeated: {}{dropped}",
        arrivals.arrived, arrivals.missing, arrivals.repeated
    ));
    Ok(code)
}

async fn produce(exporter: &Exporter, events: &[Event]) -> Result<(), Failure> {
    for chunk in events.chunks(10) {
        match exporter.buffer().append(chunk).await? {
            Appended::Kept { .. } => sleep(PACE / 2).await,
            other => return Err(format!("the buffer refused events: {other:?}").into()),
        }
    }
    Ok(())
}

type Print = Arc<dyn Fn(String) + Send + Sync>;

/// The exporter sends to `file`, unless the arguments name a sink.
async fn exporter(
    arguments: &Arguments,
    name: &str,
    file: &Path,
    print: Print,
) -> Result<Exporter, Failure> {
    let dead_letters = FileDeadLetters::new(dead_letters_of(file), Arc::clone(&print));
    let sink = match &arguments.sink {
        Some(address) => open_sink(address)?,
        None => Arc::new(FileSink::new(file.to_owned(), PACE, Arc::clone(&print))),
    };
    let pipeline = counts::pipeline(print);
    let exporter = open(&arguments.store, name, ttl(arguments)?, sink, pipeline).await?;
    Ok(exporter.with_dead_letters(Arc::new(dead_letters)))
}

fn dead_letters_of(file: &Path) -> PathBuf {
    file.with_extension("too-large.ndjson")
}

fn limit(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_no_number| "a limit is a number of events, 0 or more".to_owned())
}

fn ttl(arguments: &Arguments) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(arguments.ttl)
        .map_err(|_no_length| format!("ttl {:?} is not a length in seconds", arguments.ttl).into())
}

const MAX_SCHEDULERS: usize = 20;
const KILLED_AT: u32 = 4;
const PACE: Duration = Duration::from_millis(40);
const POLL: Duration = Duration::from_millis(50);
