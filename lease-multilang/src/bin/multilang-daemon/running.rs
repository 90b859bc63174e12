//! The daemon, from its start to its end.

use std::time::Duration;

use lease_kinesis::multilang::daemon::Children;
use lease_kinesis::{KclTable, KinesisSource, Worker};
use tokio::select;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::arguments::Arguments;
use crate::clients::Clients;
use crate::failure::Failure;
use crate::progress::{self, StatusLine};
use crate::properties::Ignored;
use crate::settings::{OnChildFailure, Settings};
use crate::signals::Signals;
use crate::{logging, parent, program, start, table};

/// Reads the stream, until it is told to stop, or cannot go on.
pub(crate) async fn run(
    mut settings: Settings,
    arguments: &Arguments,
    of_java: &[String],
) -> Result<(), Failure> {
    // Before anything else, so that none is lost.
    let mut signals = Signals::listen().map_err(Failure::other)?;
    program::is_there(&settings.command)?;
    let line = StatusLine::begin();
    logging::begin(&line);
    tell_what_is_ignored(&settings, arguments, of_java);
    let (clients, table) = select! {
        biased;
        signal = signals.next() => {
            info!(signal, "told to stop, nothing has begun");
            line.end();
            return Ok(());
        }
        opened = open(&settings) => opened?,
    };
    let command = settings.command.clone();
    settings.command = parent::bound_to_this(settings.command);
    let children = children(&settings);
    let worker = worker(&settings, &clients, &table, children.clone())?;
    let kinesis = settings.kinesis.told("kinesisEndpoint", clients.kinesis.config().region());
    info!(
        application = settings.application, stream = settings.stream, kinesis,
        worker = %worker.name(), %command, language = settings.language,
        initial_position = start::in_words(settings.initial), "daemon begins"
    );
    let telling = tokio::spawn(progress::tell(worker.handle(), line.clone()));
    let ended = attend(worker, &children, &settings, signals).await;
    telling.abort();
    line.end();
    ended
}

/// What it works on.
async fn open(settings: &Settings) -> Result<(Clients, KclTable), Failure> {
    let clients = Clients::open(settings).await?;
    // Boxed: the future that makes a table is large, and runs once.
    match Box::pin(table::open(clients.dynamodb.clone(), settings)).await {
        Ok(table) => Ok((clients, table)),
        Err(failure) => Err(clients.explained(failure).await),
    }
}

fn tell_what_is_ignored(settings: &Settings, arguments: &Arguments, of_java: &[String]) {
    let Ignored { without_effect, unknown } = &settings.ignored;
    if !without_effect.is_empty() {
        warn!("properties without effect are ignored: {}", without_effect.join(", "));
    }
    if !unknown.is_empty() {
        warn!("unknown properties are ignored: {}", unknown.join(", "));
    }
    if let Some(file) = &arguments.log_configuration {
        let file = file.display();
        warn!(%file, "the configuration of logback is not read, RUST_LOG says what is logged");
    }
    if !of_java.is_empty() {
        debug!(?of_java, "options of a JVM are not needed");
    }
}

fn children(settings: &Settings) -> Children {
    let children = Children::of(settings.command.clone()).with_farewell(FAREWELL);
    match settings.answer_limit {
        Some(limit) => children.with_answer_limit(limit),
        None => children,
    }
}

fn worker(
    settings: &Settings,
    clients: &Clients,
    table: &KclTable,
    children: Children,
) -> Result<Worker, Failure> {
    let stream = KinesisSource::new(&clients.kinesis, &settings.stream);
    let stream = stream.with_consumer(&settings.consumer);
    let mut builder = Worker::builder(&settings.application, table.clone(), stream, children)
        .beside_kcl(table, settings.most_steals)
        .with_options(settings.options.clone())
        .with_initial_position(settings.initial)
        .with_retrieval(settings.retrieval)
        .with_max_records(settings.most_records)
        .with_idle_pause(settings.idle)
        .with_backoff(settings.first_backoff, LONGEST_BACKOFF)
        .with_settling(settings.settling)
        .with_grace(settings.grace.saturating_sub(for_children(settings.grace)))
        .with_sync_interval(settings.sync_interval);
    if settings.empty_batches {
        builder = builder.with_empty_batches();
    }
    if let Some(name) = &settings.worker {
        builder = builder.with_name(name.clone());
    }
    if let Some(most) = settings.most_shards {
        builder = builder.with_max_shards(most);
    }
    builder.build().map_err(Failure::usage)
}

/// Has the worker run, and does what signals and children want.
async fn attend(
    worker: Worker,
    children: &Children,
    settings: &Settings,
    mut signals: Signals,
) -> Result<(), Failure> {
    let handle = worker.handle();
    let mut running = tokio::spawn(worker.run());
    let exits = settings.on_failure == OnChildFailure::Exit;
    let mut has_failed = false;
    // Once it is told to stop: completes when it has to be gone.
    let mut grace = None;
    let stop = |grace: &mut Option<_>| {
        grace.get_or_insert_with(|| Box::pin(sleep(settings.grace)));
        handle.stop();
    };
    let ended = loop {
        select! {
            biased;
            signal = signals.next() => {
                if grace.is_some() {
                    return Err(Failure::other(format!("ended at once by a second signal, {signal}")));
                }
                info!(signal, grace = ?settings.grace, "told to stop, everything is handed over");
                stop(&mut grace);
            }
            () = children.one_has_failed(), if exits && !has_failed => {
                warn!("a child has failed, so everything is handed over: onChildFailure = exit");
                has_failed = true;
                stop(&mut grace);
            }
            ended = &mut running => break ended,
        }
    };
    let stops = grace.is_some();
    select! {
        biased;
        _ = signals.next(), if stops => (),
        () = children.all_ended() => (),
        () = grace.unwrap_or_else(|| Box::pin(sleep(settings.grace))) => {
            warn!("not all children have ended, they are killed");
        }
    }
    ended.map_err(Failure::other)?.map_err(Failure::other)?;
    if has_failed {
        return Err(Failure::other("a child has failed"));
    }
    info!("daemon ended");
    Ok(())
}

/// What of `grace` is left to children when their shards have been handed over: they are told that
/// their leases are lost, and exit.
fn for_children(grace: Duration) -> Duration {
    (grace / 8).min(Duration::from_secs(2))
}

/// For a child to come to an end, once it is told to.
const FAREWELL: Duration = Duration::from_secs(5);

/// Between the restarts of a child that always fails.
const LONGEST_BACKOFF: Duration = Duration::from_mins(1);
