//! A load beside the counters: many tasks claim random keys, so that claims and releases share batches.
//!
//! Start at [`task`], the program of one task, and at [`run`], which measures and judges. The supervisor
//! records the tasks' messages in the [`log`]. [`safety`] judges the log by the rules of the counters, and
//! [`rate`] judges the progress. [`commands`] counts batches. [`swapped`] breaks a rule on purpose.

pub(crate) mod commands;
pub(crate) mod log;
pub(crate) mod rate;
pub(crate) mod run;
pub(crate) mod safety;
pub(crate) mod swapped;
pub(crate) mod task;

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use lease_core::LeaseKey;

use crate::failure::Failure;
use crate::load::log::LoadLog;

/// `256x10000` are 256 tasks on 10,000 keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) tasks: usize,
    pub(crate) keys: usize,
}

pub(crate) type SharedLog = Arc<Mutex<LoadLog>>;

impl Load {
    pub(crate) fn processes(self) -> usize {
        self.tasks.min(MOST_PROCESSES)
    }

    pub(crate) fn share(self, process: usize) -> usize {
        let processes = self.processes();
        self.tasks / processes + usize::from(process < self.tasks % processes)
    }
}

pub(crate) fn key_of(number: usize) -> Result<LeaseKey, Failure> {
    Ok(format!("load-{number}").parse()?)
}

pub(crate) fn name_in_redis(number: usize) -> String {
    format!("lease:{{load-{number}}}")
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<usize>().ok();
        let parts = text.split_once('x');
        match parts.and_then(|(tasks, keys)| Some((number(tasks)?, number(keys)?))) {
            Some((tasks @ 1..=MOST_TASKS, keys @ 1..=MOST_KEYS)) => Ok(Self { tasks, keys }),
            _ => Err(format!(
                "a load is TASKSxKEYS, such as 256x10000: 1 to {MOST_TASKS} tasks on 1 to {MOST_KEYS} keys"
            )),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.tasks, self.keys)
    }
}

/// With two processes, keys pass between processes, and one process continues while the other is
/// stopped.
const MOST_PROCESSES: usize = 2;

const MOST_TASKS: usize = 4096;

/// The log has a list for each key, so the number of keys is limited.
const MOST_KEYS: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_survives_its_text_form() {
        let load = Load { tasks: 256, keys: 10_000 };

        assert_eq!(load.to_string(), "256x10000");
        assert_eq!("256x10000".parse(), Ok(load));
    }

    #[test]
    fn load_without_tasks_or_keys_is_rejected() {
        for text in ["", "256", "0x10", "10x0", "x", "5000x10", "-1x10", "4x2x1"] {
            assert!(text.parse::<Load>().is_err(), "{text}");
        }
    }

    #[test]
    fn processes_share_all_tasks() {
        for tasks in [1, 2, 7, 256] {
            let load = Load { tasks, keys: 1 };
            let shares = (0..load.processes()).map(|process| load.share(process));

            assert_eq!(shares.sum::<usize>(), tasks);
        }
    }
}
