//! The command that repeats a run.

use std::path::Path;

use clap::ValueEnum;

use crate::faults::single_fault::SingleFault;
use crate::setup::{FREQUENT, Faults, Setup};
use crate::store::Clocks;

pub(crate) fn command_of(setup: &Setup, file: Option<&Path>) -> String {
    let single = setup.faults == Faults::Single;
    let mode = if single { mode_of(setup) } else { String::new() };
    let load = setup.load.map(|load| format!(" --load {load}")).unwrap_or_default();
    let sabotage = setup.sabotage.and_then(|sabotage| sabotage.to_possible_value());
    let sabotage = sabotage.map(|value| format!(" --sabotage {}", value.get_name()));
    let pause = match setup.pause {
        FREQUENT => String::new(),
        pause => format!(" --pause {}", pause.as_secs()),
    };
    let file = file.map(|file| format!(" --report {}", file.display()));
    let store = setup.store.to_possible_value();
    format!(
        "cargo run --release -p lease-chaos -- \\\n    --store {} --minutes {} \
         --seed {}{mode}{pause}{load}{}{}",
        store.as_ref().map_or("", |value| value.get_name()),
        setup.length.as_secs_f64() / 60.0,
        setup.seed,
        sabotage.unwrap_or_default(),
        file.unwrap_or_default(),
    )
}

fn mode_of(setup: &Setup) -> String {
    let name = |value: Option<clap::builder::PossibleValue>| {
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    };
    let mut mode = " --faults single".to_owned();
    if setup.clocks == Clocks::Step {
        mode.push_str(" --clocks step");
    }
    if setup.kinds != SingleFault::all_of(setup.store, setup.clocks) {
        for kind in &setup.kinds {
            mode.push_str(" --only ");
            mode.push_str(&name(kind.to_possible_value()));
        }
    }
    mode
}
