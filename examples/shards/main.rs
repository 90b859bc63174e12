//! Workers share the shards of a stream while workers join, are killed and stop, and shards are
//! split and merged. Every record is processed, in the order of its partition key.

mod fleet;
mod options;
mod table;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use lease_core::LeaseOptions;
use lease_examples::{Failure, exit, stores::open_table};
use lease_kinesis::SimStream;
use tokio::select;
use tokio::time::sleep;

use self::fleet::Fleet;
use self::worker::Stream;

/// Shares the shards of a stream among workers: one worker joins, one is killed, one stops, and shards are
/// split and merged.
#[derive(Debug, Parser)]
struct Arguments {
    /// The store of leases and checkpoints: memory, redis://HOST:PORT or dynamodb://HOST:PORT/TABLE.
    #[arg(long, default_value = "memory")]
    store: String,
    /// A stream in AWS, by name or ARN, instead of a simulated one. Reads it until Ctrl-C.
    #[arg(long, value_name = "NAME", value_parser = options::stream)]
    stream: Option<String>,
    /// The number of workers at the start, 2 to 20.
    #[arg(
        long, default_value = "3", value_name = "NUMBER", value_parser = options::workers,
        allow_negative_numbers = true
    )]
    workers: usize,
    /// The number of shards of the simulated stream, 2 to 200.
    #[arg(
        long, default_value = "12", value_name = "NUMBER", value_parser = options::shards,
        allow_negative_numbers = true, conflicts_with = "stream"
    )]
    shards: u16,
    /// The ttl of a lease, in seconds: 0.1 to 86400.
    #[arg(
        long, default_value = "2", value_name = "SECONDS", value_parser = options::leases,
        allow_negative_numbers = true
    )]
    ttl: LeaseOptions,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    exit("shards", run(Arguments::parse()).await)
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { store, stream, workers, shards, ttl: options } = arguments;
    // A wrong address fails here, before any worker starts.
    open_table(&store).await?;

    if let Some(stream) = stream {
        let fleet = Fleet::new(store, options, Stream::in_aws(&stream)?);
        return read(fleet, workers).await;
    }
    let stream = SimStream::new(shards);
    let fleet = Fleet::new(store, options, Stream::Simulated(stream.clone()));
    check(fleet, workers, stream).await
}

async fn read(mut fleet: Fleet, workers: usize) -> Result<ExitCode, Failure> {
    select! {
        biased;
        () = stop_signal() => fleet.print("stop signal: hands over all shards"),
        ended = fleet.watch(workers) => ended?,
    }
    fleet.stop_all().await?;
    Ok(ExitCode::SUCCESS)
}

/// Runs all events of the example, and compares the processed records with the records of the
/// stream.
async fn check(mut fleet: Fleet, workers: usize, stream: SimStream) -> Result<ExitCode, Failure> {
    let producer = tokio::spawn(produce(stream.clone()));
    select! {
        biased;
        () = stop_signal() => {
            fleet.print("stop signal: hands over all shards");
            fleet.stop_all().await?;
            fleet.screen.end("verdict: none, since the run was stopped");
            return Ok(ExitCode::FAILURE);
        }
        ended = fleet.run_all_events(workers, &stream) => ended?,
    }
    producer.abort();
    drop(producer.await);
    fleet.until_all_are_processed(&stream).await?;
    fleet.stop_all().await?;
    let verdict = fleet.deliveries.verdict(&stream.put_by_partition_key());
    fleet.screen.end(verdict);
    Ok(if verdict.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn produce(stream: SimStream) {
    for number in 0_u32.. {
        stream.put(&format!("customer {}", number % 150), number.to_string());
        if number % 5 == 0 {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn stop_signal() {
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
