//! Describes the machine and the versions of the servers, and reads the processor time.

use std::process::Command;

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
        output_of("redis-server", "--version"),
        output_of("rustc", "--version"),
    )
}

pub(crate) fn today() -> String {
    output_of("date", "+%Y-%m-%d")
}

/// The time of all cores, in seconds.
pub(crate) fn processor_time() -> f64 {
    processor_time_of(std::process::id())
}

/// The time of all cores, in seconds.
pub(crate) fn processor_time_of(process: u32) -> f64 {
    // proc(5), schedstat: the first field is time on a processor, in nanoseconds. The times in
    // /proc/PID/stat are in ticks of 10 ms.
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

fn output_of(program: &str, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_else(|error| format!("{program}: {error}"));
    text.lines().next().unwrap_or_default().split(" sha=").next().unwrap_or_default().to_owned()
}
