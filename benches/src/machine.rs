//! What the figures are of: the machine, and the versions.

use std::process::Command;

/// One line about the machine and the servers.
pub(crate) fn described() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor =
        processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let processor = processor.map_or("a processor without a name", |(_, name)| name);
    format!(
        "{cores} cores of {processor}, Linux {}; {}; dynoxide 3.2.0; {}",
        kernel.trim(),
        said_by("redis-server", "--version"),
        said_by("rustc", "--version"),
    )
}

/// Today, as the system has it.
pub(crate) fn today() -> String {
    said_by("date", "+%Y-%m-%d")
}

/// Processor time of this process so far, in seconds, on all cores.
pub(crate) fn processor_time() -> f64 {
    // proc(5), schedstat: the first field is time on a processor, in nanoseconds.
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

fn said_by(program: &str, argument: &str) -> String {
    let said = Command::new(program).arg(argument).output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
    let said = said.unwrap_or_else(|error| format!("{program}: {error}"));
    said.lines().next().unwrap_or_default().split(" sha=").next().unwrap_or_default().to_owned()
}
