//! Workers share the shards of a stream, while they come and go and the stream is reshaped: every
//! record is worked on, in the order of its partition key.

mod fleet;
mod options;
mod telling;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use lease_core::LeaseOptions;
use lease_examples::{Failure, end, open_table};
use lease_kinesis::SimStream;
use tokio::select;
use tokio::time::sleep;

use self::fleet::Fleet;
use self::worker::Stream;

/// Shares the shards of a stream among workers: one joins, one is killed, one stops, and shards are
/// split and merged.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where it is kept who reads which shard, and how far.
    #[arg(long, default_value = "memory")]
    store: String,
    /// Reads this stream in AWS, by its name or its ARN, instead of a simulated one, until it is
    /// told to stop.
    #[arg(long, value_name = "NAME", value_parser = options::stream)]
    stream: Option<String>,
    /// How many workers begin, of 2 to 20.
    #[arg(
        long, default_value = "3", value_name = "NUMBER", value_parser = options::workers,
        allow_negative_numbers = true
    )]
    workers: usize,
    /// How many shards the simulated stream begins with, of 2 to 200.
    #[arg(
        long, default_value = "12", value_name = "NUMBER", value_parser = options::shards,
        allow_negative_numbers = true, conflicts_with = "stream"
    )]
    shards: u16,
    /// How long a lease lasts without a heartbeat, in seconds: 0.1 to 86400.
    #[arg(
        long, default_value = "2", value_name = "SECONDS", value_parser = options::leases,
        allow_negative_numbers = true
    )]
    ttl: LeaseOptions,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    end("shards", run(Arguments::parse()).await)
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { store, stream, workers, shards, ttl: options } = arguments;
    // Opened once here, so that a wrong address is told before anything starts.
    open_table(&store).await?;

    if let Some(stream) = stream {
        let fleet = Fleet::new(store, options, Stream::in_aws(&stream)?);
        return read(fleet, workers).await;
    }
    let stream = SimStream::new(shards);
    let fleet = Fleet::new(store, options, Stream::Simulated(stream.clone()));
    prove(fleet, workers, stream).await
}

/// Reads a stream that others write to.
async fn read(mut fleet: Fleet, workers: usize) -> Result<ExitCode, Failure> {
    select! {
        biased;
        () = told_to_stop() => fleet.tell("told to stop: everything is handed over"),
        ended = fleet.look_on(workers) => ended?,
    }
    fleet.stop_all().await?;
    Ok(ExitCode::SUCCESS)
}

/// Does everything to a simulated stream and its readers, and holds what was read against what was
/// put.
async fn prove(mut fleet: Fleet, workers: usize, stream: SimStream) -> Result<ExitCode, Failure> {
    let producer = tokio::spawn(put_all_the_time(stream.clone()));
    select! {
        biased;
        () = told_to_stop() => {
            fleet.tell("told to stop: everything is handed over");
            fleet.stop_all().await?;
            fleet.screen.end("verdict: none, since this was stopped half-way");
            return Ok(ExitCode::FAILURE);
        }
        ended = fleet.live_through(workers, &stream) => ended?,
    }
    producer.abort();
    drop(producer.await);
    fleet.until_all_is_read(&stream).await?;
    fleet.stop_all().await?;
    let verdict = fleet.deliveries.verdict(&stream.put_by_partition_key());
    fleet.screen.end(verdict);
    Ok(if verdict.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn put_all_the_time(stream: SimStream) {
    for number in 0_u32.. {
        stream.put(&format!("customer {}", number % 150), number.to_string());
        if number % 5 == 0 {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Completes at Ctrl-C; and where a supervisor ends the program.
async fn told_to_stop() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    select! {
        () = interrupted => (),
        () = terminated() => (),
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};

    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => drop(terminate.recv().await),
        Err(_unknown) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}
