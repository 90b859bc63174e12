//! Several schedulers export the events of a file; one of them is killed while it sends, another goes
//! on, and everything arrives.
//!
//! On memory, each scheduler lives on a thread and a runtime of its own; on Redis, in a process of
//! its own, which is killed for real. The other commands are an operator's.

mod schedulers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};
use lease_examples::counts;
use lease_examples::export_parts::{open, open_sink};
use lease_examples::orders::{FileDeadLetters, FileSink, Orders, compare, read};
use lease_examples::{Failure, Timeline, end, show};
use lease_scheduler::export::{
    Appended, Deleted, Event, Exported, Exporter, Flushed, Intake, Operator, PutIn, Scheduled,
    StopCause, Worked,
};
use tokio::select;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::schedulers::{Scheduler, be_scheduler};

/// Exports the events of a file, although a scheduler is killed while it sends; or does what an
/// operator says.
#[derive(Debug, Clone, Parser)]
struct Arguments {
    /// Where leases, jobs and events are kept: memory, or redis://HOST:PORT.
    #[arg(long, default_value = "memory", global = true)]
    store: String,
    /// Where events go: kinesis:NAME or firehose:NAME in AWS, by default a file that is compared.
    #[arg(long, value_name = "PLACE", global = true)]
    sink: Option<String>,
    /// How long a lease lasts without a heartbeat, in seconds.
    #[arg(
        long,
        default_value_t = 1.0,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        global = true
    )]
    ttl: f64,
    /// One event per line, as JSON. A file of 240 orders comes along.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// How many schedulers there are.
    #[arg(long, default_value_t = 3, value_name = "NUMBER")]
    schedulers: usize,
    #[command(subcommand)]
    order: Option<Order>,
}

/// What an operator orders.
#[derive(Debug, Clone, Subcommand)]
enum Order {
    /// Enables export.
    Enable,
    /// Disables export, unless the intake is open.
    Disable,
    /// Puts a count into the bucket of this second, unless the intake is stopped.
    Put {
        /// What is counted: ITEM/PERIOD, such as tea/hour.
        key: String,
        /// How many. What is no count is left out when it is to be sent, and told then.
        #[arg(allow_negative_numbers = true)]
        count: String,
    },
    /// Lists the buckets that wait.
    List,
    /// Schedules a job, and works on it: it collects what is closed, and sends all that is pending.
    Send,
    /// Opens the intake, unless export is disabled.
    Open,
    /// Stops the intake.
    Stop,
    /// Tells how many events are pending.
    Pending,
    /// Sends pending events now: all, or up to so many.
    Flush {
        /// How many.
        #[arg(value_parser = limit, allow_negative_numbers = true)]
        limit: Option<u64>,
    },
    /// Tells whether the intake is open, and whether it was stopped for lack of room.
    Emergency,
    /// Stops the intake, and removes everything that waits, in buckets and in the buffer.
    Delete,
    /// One scheduler, until its standard input ends.
    #[command(hide = true)]
    Scheduler {
        /// What it is called.
        name: String,
        /// Where events arrive.
        file: PathBuf,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.order.clone() {
        None => run(arguments).await,
        Some(Order::Scheduler { name, file }) => be_scheduler(arguments, name, file).await,
        Some(order) => obey(arguments, order).await,
    };
    end("exporter", outcome)
}

/// Carries out one order.
async fn obey(arguments: Arguments, order: Order) -> Result<ExitCode, Failure> {
    let tell: Tell = Arc::new(show);
    let exporter = exporter(&arguments, "operator", Path::new("exported.ndjson"), tell).await?;
    let operator = Operator::new(&exporter);
    let refused = |answer: Result<(), lease_scheduler::export::Refusal>, done: &str| match answer {
        Ok(()) => (done.to_owned(), ExitCode::SUCCESS),
        Err(refusal) => (format!("refused: {refusal}"), ExitCode::FAILURE),
    };
    let done = |text: String| (text, ExitCode::SUCCESS);
    let (told, code) = match order {
        Order::Enable => {
            operator.enable().await?;
            done("export is enabled".to_owned())
        }
        Order::Disable => refused(operator.disable().await?, "export is disabled"),
        Order::Put { key, count } => {
            let buckets = exporter.buckets().ok_or("there are no buckets")?;
            match buckets.put(&[(key.as_str(), Some(count.as_str()))]).await? {
                PutIn::Bucket(bucket) => done(format!("{key} is in bucket {}", bucket.time_gen())),
                PutIn::Stopped(_) => {
                    (format!("refused: {key}, the intake is stopped"), ExitCode::FAILURE)
                }
            }
        }
        Order::List => {
            let buckets = operator.list().await?;
            for (bucket, keys) in &buckets {
                show(format_args!("bucket {}: {keys} keys", bucket.time_gen()));
            }
            done(format!("{} buckets wait", buckets.len()))
        }
        Order::Send => done(send(&exporter).await?),
        Order::Open => refused(operator.open_intake().await?, "the intake is open"),
        Order::Stop => {
            operator.stop_intake().await?;
            done("the intake is stopped".to_owned())
        }
        Order::Pending => done(format!("{} events are pending", operator.pending().await?)),
        Order::Flush { limit } => match operator.flush(limit).await? {
            Flushed::Done(exported) => sent(&exported),
            Flushed::Held(holder) => nothing_sent(&format!("{} exports", holder.lessee)),
            _ => nothing_sent("export is disabled"),
        },
        Order::Emergency => done(match operator.intake().await? {
            Intake::Stopped(StopCause::Operator) if operator.is_emergency().await? => {
                "the intake is stopped by an operator, and the buffer for lack of room".to_owned()
            }
            Intake::Open => "the intake is open".to_owned(),
            Intake::Stopped(cause) => format!("the intake is stopped: {cause:?}"),
        }),
        Order::Delete => match operator.delete().await? {
            Deleted::Done(count) => done(format!("{count} buckets and events were deleted")),
            Deleted::Held(holder) => {
                let stopped = "the intake is stopped, and nothing was deleted";
                (format!("refused: {stopped}: {} has the lease", holder.lessee), ExitCode::FAILURE)
            }
        },
        Order::Scheduler { .. } => return Err("a scheduler is no order of an operator's".into()),
    };
    show(told);
    Ok(code)
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

fn nothing_sent(why: &str) -> (String, ExitCode) {
    (format!("0 events were sent: {why}"), ExitCode::FAILURE)
}

/// What a cron job does on one machine, and a worker on another.
async fn send(exporter: &Exporter) -> Result<String, Failure> {
    let ours = match exporter.schedule_job().await? {
        Scheduled::Enqueued(id) => id,
        Scheduled::Held(holder) => return Ok(format!("no job: {} exports", holder.lessee)),
        _ => return Ok("no job: export is disabled".to_owned()),
    };
    loop {
        let worked = exporter.run_next_job(PACE).await?;
        match &worked {
            Worked::Done(id, exported) if *id == ours => {
                return Ok(format!(
                    "{worked}, {} came from buckets, {} were left out, {} failed",
                    exported.collected, exported.bad, exported.failed
                ));
            }
            Worked::Idle => return Ok(format!("job {ours} is worked on elsewhere")),
            // One that was left behind by somebody who was killed: it comes again after ours.
            _ => show(worked),
        }
    }
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if !(2..=MOST_SCHEDULERS).contains(&arguments.schedulers) {
        let range = format!("2 to {MOST_SCHEDULERS}, since one is killed and another goes on");
        return Err(format!("{} schedulers are out of range: {range}", arguments.schedulers).into());
    }
    let orders = read(arguments.events.as_deref())?;
    let events = &orders.events;
    let file = std::env::temp_dir().join(format!("exported-{}.ndjson", std::process::id()));
    let unheard: Tell = Arc::new(drop);
    let exporter = exporter(&arguments, "producer", &file, unheard).await?;
    let pending = exporter.num_pending_events().await?;
    if pending > 0 {
        return Err(format!("{pending} events are pending already: flush them").into());
    }
    exporter.enable().await?;

    let (told, mut heard) = mpsc::unbounded_channel();
    let mut fleet = Vec::new();
    for number in 1..=arguments.schedulers {
        fleet.push(Scheduler::start(&arguments, format!("scheduler-{number}"), &file, &told)?);
    }
    drop(told);
    let timeline = Timeline::start();
    for refused in &orders.refused {
        timeline.tell("producer", None, format_args!("leaves out {refused}"));
    }
    let mut producing = Box::pin(produce(&exporter, events));
    let mut sends = 0;
    let mut is_produced = false;
    loop {
        select! {
            biased;
            Some((name, line)) = heard.recv() => {
                timeline.tell(&name, None, &line);
                sends += u32::from(line.contains("sends"));
                // At once: what it has sent, it has not removed yet.
                if sends == KILLED_AT
                    && line.contains("sends")
                    && let Some(place) = fleet.iter().position(|it| it.name == name)
                {
                    fleet.swap_remove(place).kill().await;
                    timeline.tell(&name, None, "KILLED while it sends");
                }
            }
            produced = &mut producing, if !is_produced => {
                produced?;
                is_produced = true;
                timeline.tell("producer", None, format_args!("{} events appended", events.len()));
            }
            () = sleep(GLANCE) => {
                let pending = exporter.num_pending_events().await?;
                if is_produced && pending == 0 {
                    break;
                }
                if heard.is_closed() {
                    return Err(format!("no scheduler is left, {pending} events are pending").into());
                }
            }
        }
    }
    for scheduler in fleet {
        scheduler.stop().await?;
    }
    verdict(&arguments, &orders, &file)
}

fn verdict(arguments: &Arguments, orders: &Orders, file: &Path) -> Result<ExitCode, Failure> {
    let too_large = beside(file);
    let arrivals = compare(&orders.events, file, &too_large)?;
    drop(std::fs::remove_file(file));
    let left_out = match (orders.refused.len(), arrivals.too_large) {
        (0, 0) => String::new(),
        (refused, 0) => format!("; left out: {refused} that are no events"),
        (refused, large) => format!(
            "; left out: {refused} that are no events, {large} that are too large, in {}",
            too_large.display()
        ),
    };
    let complete = if left_out.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if let Some(sink) = &arguments.sink {
        let taken = orders.events.len() - arrivals.too_large;
        show(format_args!("verdict: {taken} events were taken by {sink}{left_out}"));
        return Ok(complete);
    }
    let (verdict, code) = if arrivals.missing == 0 && arrivals.foreign == 0 {
        ("every event arrived", complete)
    } else {
        ("FAILED", ExitCode::FAILURE)
    };
    show(format_args!(
        "verdict: {verdict}; arrived: {}, missing: {}, again: {}{left_out}",
        arrivals.arrived, arrivals.missing, arrivals.again
    ));
    Ok(code)
}

/// Events come a few at a time.
async fn produce(exporter: &Exporter, events: &[Event]) -> Result<(), Failure> {
    for some in events.chunks(10) {
        match exporter.buffer().append(some).await? {
            Appended::Kept { .. } => sleep(PACE / 2).await,
            other => return Err(format!("the buffer takes nothing in: {other:?}").into()),
        }
    }
    Ok(())
}

type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// The exporter of one process, `who`, which sends to `file` unless told otherwise.
async fn exporter(
    arguments: &Arguments,
    who: &str,
    file: &Path,
    tell: Tell,
) -> Result<Exporter, Failure> {
    let dead_letters = FileDeadLetters::new(beside(file), Arc::clone(&tell));
    let sink = match &arguments.sink {
        Some(place) => open_sink(place)?,
        None => Arc::new(FileSink::new(file.to_owned(), PACE, Arc::clone(&tell))),
    };
    let pipeline = counts::pipeline(tell);
    let exporter = open(&arguments.store, who, ttl(arguments)?, sink, pipeline).await?;
    Ok(exporter.with_dead_letters(Arc::new(dead_letters)))
}

/// Where events are that the sink will never take.
fn beside(file: &Path) -> PathBuf {
    file.with_extension("too-large.ndjson")
}

fn limit(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_no_number| "a limit is a number of events, 0 or more".to_owned())
}

fn ttl(arguments: &Arguments) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(arguments.ttl)
        .map_err(|_no_length| format!("ttl {:?} is not a length in seconds", arguments.ttl).into())
}

const MOST_SCHEDULERS: usize = 20;
/// At which request the scheduler that makes it is killed.
const KILLED_AT: u32 = 4;
const PACE: Duration = Duration::from_millis(40);
const GLANCE: Duration = Duration::from_millis(50);
