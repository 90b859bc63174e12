//! A holder is paused for longer than its lease lasts; its late write is refused by the gate.
//!
//! No lease can prevent such a write: between looking at the clock and writing, a process may be
//! paused for an hour. So the token goes along, and what is written to refuses the old one.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lease_core::fence::Gate;
use lease_core::{FencingToken, LeaseKey, LeaseOptions, Lessee, Locker};
use lease_examples::{Failure, Timeline, end, open, show};
use tokio::{runtime, select};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    end("fenced_write", run().await)
}

async fn run() -> Result<ExitCode, Failure> {
    let office = Arc::new(Office {
        key: "report".parse()?,
        report: Gate::default(),
        timeline: Timeline::start(),
    });
    let lease = office.locker("former").await?.wait_until_obtained(&office.key).await?;
    let token = lease.token();
    office.write("former", token, "draft");

    office.tell("former", token, "PAUSED, with its next write in hand");
    let successor = {
        let office = Arc::clone(&office);
        thread::spawn(move || take_over(&office))
    };
    // The pause: this thread stands still, and with it everything on its runtime, heartbeats
    // included, until the successor has come and gone.
    successor.join().map_err(|_panic| "the successor panicked")??;

    let told_at_once = select! {
        biased;
        lost = lease.lost() => Some(lost),
        // Ready at the first poll: what comes later than that, comes too late.
        () = async {} => None,
    };
    office.tell("former", token, "goes on");
    office.tell("former", token, format_args!("is_held(): {}", lease.is_held()));
    match &told_at_once {
        Some(lost) => office.tell("former", token, format_args!("lost(): {lost}")),
        None => office.tell("former", token, "lost() did not complete at its first poll"),
    }

    office.tell("former", token, "ignores both, and writes all the same");
    let accepted = office.write("former", token, "draft, again");
    Ok(office.verdict(!lease.is_held() && told_at_once.is_some() && !accepted))
}

/// What another process does meanwhile: it obtains the lease once that has run out, and writes.
fn take_over(office: &Office) -> Result<(), Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let locker = office.locker("successor").await?;
        let lease = locker.wait_until_obtained(&office.key).await?;
        office.write("successor", lease.token(), "final report");
        lease.release().await?;
        Ok(())
    })
}

struct Office {
    key: LeaseKey,
    /// Stands for a file or a table row: it outlives who writes it, and knows only tokens.
    report: Gate<String>,
    timeline: Timeline,
}

impl Office {
    async fn locker(&self, name: &str) -> Result<Locker, Failure> {
        let locker = Locker::new(open("memory").await?)
            .with_lessee(Lessee::new(name)?)
            .with_options(LeaseOptions::new(TTL)?);
        Ok(locker)
    }

    /// Replaces the report; says whether the gate let the write through.
    fn write(&self, who: &str, token: FencingToken, text: &str) -> bool {
        let written = self.report.write(token, |report| text.clone_into(report));
        match &written {
            Ok(()) => self.tell(who, token, format_args!("wrote {text:?}")),
            Err(stale) => self.tell(who, token, format_args!("REFUSED by the gate: {stale}")),
        }
        written.is_ok()
    }

    fn tell(&self, who: &str, token: FencingToken, what: impl std::fmt::Display) {
        self.timeline.tell(who, Some(token), what);
    }

    fn verdict(&self, as_promised: bool) -> ExitCode {
        let report = self.report.read(String::clone);
        if as_promised && report == "final report" {
            show(format_args!(
                "\nverdict: the report reads {report:?}; the late write changed nothing"
            ));
            ExitCode::SUCCESS
        } else {
            show(format_args!("\nverdict: FAILED: the report reads {report:?}"));
            ExitCode::FAILURE
        }
    }
}

const TTL: Duration = Duration::from_secs(1);
