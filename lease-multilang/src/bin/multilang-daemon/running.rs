//! Runs the daemon from its start to its end.

use std::time::Duration;

use lease_kcl::{KclCoexistence, KclTable};
use lease_kinesis::{KinesisSource, Worker};
use lease_multilang::daemon::Children;
use tokio::select;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::arguments::Arguments;
use crate::aws::clients::Clients;
use crate::aws::table;
use crate::configuration::properties::Ignored;
use crate::configuration::settings::{OnChildFailure, Settings};
use crate::configuration::start;
use crate::failure::Failure;
use crate::metrics::Publisher;
use crate::signals::Signals;
use crate::status_line::{StatusLine, report_progress};
use crate::{logging, parent, program};

pub(crate) async fn run(
    settings: Settings,
    arguments: &Arguments,
    jvm_options: &[String],
) -> Result<(), Failure> {
    // Installs the signal handlers first, so that no signal is lost.
    let mut signals = Signals::listen().map_err(Failure::other)?;
    program::check_exists(&settings.command)?;
    let line = StatusLine::start();
    logging::start(&line);
    warn_of_ignored(&settings, arguments, jvm_options);
    let mut publisher = Publisher::start(arguments.metrics.or(settings.metrics), &settings)?;
    let (clients, table) = select! {
        biased;
        signal = signals.next() => {
            info!(signal, "stopping, nothing was started");
            line.end();
            return Ok(());
        }
        opened = open(&settings) => opened?,
    };
    let children = children(&settings);
    let worker = worker(&settings, &clients, &table, children.clone(), &publisher)?;
    publisher.name(&worker);
    let kinesis = settings.kinesis.describe("kinesisEndpoint", clients.kinesis.config().region());
    info!(
        application = settings.application, stream = settings.stream, kinesis,
        worker = %worker.name(), command = %settings.command, language = settings.language,
        initial_position = start::in_words(settings.initial), "daemon started"
    );
    let reporting = tokio::spawn(report_progress(worker.handle(), line.clone()));
    let ended = run_worker(worker, &children, &settings, signals).await;
    reporting.abort();
    publisher.end().await;
    line.end();
    ended
}

async fn open(settings: &Settings) -> Result<(Clients, KclTable), Failure> {
    let clients = Clients::open(settings).await?;
    let table = table::open(&clients, settings).await?;
    Ok((clients, table))
}

fn warn_of_ignored(settings: &Settings, arguments: &Arguments, jvm_options: &[String]) {
    let Ignored { without_effect, unknown } = &settings.ignored;
    if !without_effect.is_empty() {
        warn!("properties without effect are ignored: {}", without_effect.join(", "));
    }
    if !unknown.is_empty() {
        warn!("unknown properties are ignored: {}", unknown.join(", "));
    }
    if let Some(file) = &arguments.log_configuration {
        let file = file.display();
        warn!(%file, "logback configuration not read, set RUST_LOG instead");
    }
    if !jvm_options.is_empty() {
        debug!(?jvm_options, "JVM options ignored");
    }
}

fn children(settings: &Settings) -> Children {
    let children = Children::new(parent::bound_to_this_process(settings.command.clone()));
    match settings.answer_timeout {
        Some(timeout) => children.with_answer_timeout(timeout),
        None => children,
    }
}

fn worker(
    settings: &Settings,
    clients: &Clients,
    table: &KclTable,
    children: Children,
    publisher: &Publisher,
) -> Result<Worker, Failure> {
    let stream = KinesisSource::new(&clients.kinesis, &settings.stream);
    let stream = stream.with_consumer(&settings.consumer);
    let coexistence = KclCoexistence::new(table.clone()).with_max_steals(settings.max_steals);
    let mut builder = Worker::builder(&settings.application, table.clone(), stream, children)
        .with_coexistence(coexistence)
        .with_options(settings.options.clone())
        .with_retrieval(settings.retrieval)
        .with_max_records(settings.max_records)
        .with_idle_pause(settings.idle)
        .with_backoff(settings.first_backoff, MAX_BACKOFF)
        .with_settling(settings.settling)
        .with_grace(settings.grace.saturating_sub(for_children(settings.grace)))
        .with_sync_interval(settings.sync_interval);
    if settings.empty_batches {
        builder = builder.with_empty_batches();
    }
    if let Some(name) = &settings.worker {
        builder = builder.with_name(name.clone());
    }
    if let Some(max) = settings.max_shards {
        builder = builder.with_max_shards(max);
    }
    publisher.observe(builder).build().map_err(Failure::usage)
}

async fn run_worker(
    worker: Worker,
    children: &Children,
    settings: &Settings,
    mut signals: Signals,
) -> Result<(), Failure> {
    let handle = worker.handle();
    let mut running = tokio::spawn(worker.run());
    let exits = settings.on_failure == OnChildFailure::Exit;
    let mut has_failed = false;
    // The timer starts at the request to stop.
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
                info!(signal, grace = ?settings.grace, "stopping, handing over all shards");
                stop(&mut grace);
            }
            () = children.child_failed(), if exits && !has_failed => {
                warn!("child failed and onChildFailure = exit, handing over all shards");
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
            warn!("children still running, killing them");
        }
    }
    ended.map_err(Failure::other)?.map_err(Failure::other)?;
    if has_failed {
        return Err(Failure::other("a child has failed"));
    }
    info!("daemon ended");
    Ok(())
}

/// The part of `grace` in which the children exit after the hand-overs.
fn for_children(grace: Duration) -> Duration {
    (grace / 8).min(Duration::from_secs(2))
}

/// The longest pause between the restarts of a child that always fails.
const MAX_BACKOFF: Duration = Duration::from_mins(1);
