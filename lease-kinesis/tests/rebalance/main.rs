//! Rules for sharing leases, side by side: what each does when workers come and go.
//!
//! Models of the Kinesis Client Library's rules and of this crate's plan, in simulated time, with
//! the same events and the same measures: it ranks rules, and is no benchmark of anybody's program.
//! One command prints the tables, of which the largest takes long without `--release`:
//! `cargo test --release -p lease-kinesis --test rebalance -- --nocapture --include-ignored`.
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

    /// What was measured of a hundred leases of ten workers.
    fn at(self, event: Event) -> Vec<Measured> {
        self.runs(&Scenario { leases: 100, workers: 10, event })
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
#[ignore = "a minute, to print a table"]
fn five_hundred_leases_of_twenty_workers() {
    print_table(500, 20);
}

#[test]
fn the_plan_is_soon_balanced_and_no_two_read_one_lease_whatever_happens() {
    for event in Event::ALL {
        for run in Rule::Plan.at(event) {
            assert!(run.balanced_after.is_some_and(|after| after < 40_000), "{event:?}: {run:?}");
            assert!(run.spread <= 1, "{event:?}: {run:?}");
            assert_eq!(run.overlap, 0, "{event:?}");
        }
    }
}

#[test]
fn by_the_plan_one_who_joins_is_given_the_fewest_leases_that_balance() {
    for run in Rule::Plan.at(Event::OneJoins) {
        assert_eq!(run.moves, run.fewest_moves);
    }
}

/// One lease at each of its looks at the table, 20.05 s apart: eight times, after the first.
#[test]
fn one_who_joins_in_version_2_takes_a_lease_at_a_time() {
    for run in Rule::Kcl2.at(Event::OneJoins) {
        assert_eq!(run.moves, 9);
        let after = run.balanced_after.unwrap();
        assert!((160_400..162_000).contains(&after), "{after}");
    }
}

/// As AWS's own `LeaseCountBasedLeaseAssignmentDecider` does: nobody has more than the average,
/// rounded up, so nobody gives anything away.
#[test]
fn one_who_joins_in_version_3_by_count_gets_nothing() {
    for run in Rule::Kcl3Count.at(Event::OneJoins) {
        assert_eq!((run.moves, run.spread, run.balanced_after), (0, 10, None));
    }
}

#[test]
fn while_version_3_has_no_leader_nobody_takes_what_is_free() {
    for rule in [Rule::Kcl3Count, Rule::Kcl3Variance] {
        let idle = table::median(&rule.at(Event::LeaderCrashes), idle_of);
        // Ten leases, for two minutes at the least.
        assert!(idle > 1_200_000.0, "{idle}");
    }
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn idle_of(run: &Measured) -> f64 {
    run.idle as f64
}

const SEEDS: std::ops::Range<u64> = 0..5;
