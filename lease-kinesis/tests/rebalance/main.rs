//! Rules for sharing leases, side by side: what each does when workers come and go.
//!
//! Models of the Kinesis Client Library's rules and of this crate's plan, in simulated time, with
//! the same events and the same measures: it ranks rules, and is no benchmark of anybody's program.
//! One command prints the tables: `cargo test -p lease-kinesis --test rebalance -- --nocapture`.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that reports"
)]

mod by_plan;
mod fleet;
mod kcl2;
mod kcl3;
mod measure;
mod scenario;
mod table;

use crate::by_plan::ByPlan;
use crate::fleet::Fleet;
use crate::kcl2::Kcl2;
use crate::kcl3::{By, Kcl3};
use crate::measure::{Measured, run};
use crate::scenario::{Event, Scenario};

/// A rule, by its name in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Kcl2,
    Kcl2StealsTen,
    Kcl3Count,
    Kcl3Variance,
    Plan,
}

impl Rule {
    const ALL: [Self; 5] =
        [Self::Kcl2, Self::Kcl2StealsTen, Self::Kcl3Count, Self::Kcl3Variance, Self::Plan];

    fn name(self) -> &'static str {
        match self {
            Self::Kcl2 => "KCL 2",
            Self::Kcl2StealsTen => "KCL 2, steal=10",
            Self::Kcl3Count => "KCL 3 count",
            Self::Kcl3Variance => "KCL 3 variance",
            Self::Plan => "plan (model)",
        }
    }

    fn fleet(self, scenario: &Scenario, seed: u64) -> Box<dyn Fleet> {
        let (leases, workers) = (scenario.leases, scenario.workers);
        match self {
            Self::Kcl2 => Box::new(Kcl2::new(leases, seed)),
            Self::Kcl2StealsTen => Box::new(Kcl2::that_steals(10, leases, seed)),
            Self::Kcl3Count => Box::new(Kcl3::new(By::Count, leases, workers, seed)),
            Self::Kcl3Variance => Box::new(Kcl3::new(By::Variance, leases, workers, seed)),
            Self::Plan => Box::new(ByPlan::new(leases, seed)),
        }
    }

    fn runs(self, scenario: &Scenario) -> Vec<Measured> {
        SEEDS.map(|seed| run(scenario, &mut *self.fleet(scenario, seed))).collect()
    }
}

fn print_table(leases: usize, workers: usize) {
    println!("{}", table::head(leases, workers));
    for event in Event::ALL {
        let scenario = Scenario { leases, workers, event };
        println!("{}", table::event(&scenario));
        for rule in Rule::ALL {
            println!("{}", table::line(rule.name(), &rule.runs(&scenario)));
        }
    }
}

#[test]
fn ten_leases_of_four_workers() {
    print_table(10, 4);
}

#[test]
fn a_hundred_leases_of_ten_workers() {
    print_table(100, 10);
}

#[test]
fn five_hundred_leases_of_twenty_workers() {
    print_table(500, 20);
}

const SEEDS: std::ops::Range<u64> = 0..5;
