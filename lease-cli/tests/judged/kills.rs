//! Random kills of `lease`, of its command, and of both.

use std::path::Path;
use std::thread;
use std::time::Duration;

use lease_test_servers::tools::memory_folder;
use rustix::process::Pid;

use crate::judge::{Gate, script};
use crate::processes::{Lease, Random, count, kill, members, running_time, until};

const TTL: Duration = Duration::from_secs(1);
/// The requirement allows this time after the deadline, on an idle machine: in a run with `LEASE_KILLS`.
const ALLOWED: Duration = Duration::from_millis(100);
/// On a busy machine, the kernel may run the process that kills only later.
const ALLOWED_IF_BUSY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Longest {
    /// The time from a kill to the end of the last process of the command.
    life: Duration,
    /// The time from a kill to the next grant.
    held: Duration,
}

fn start(folder: &Path) -> Lease {
    let script = script("");
    let arguments =
        ["run", "--ttl", "1s", "--grace", "100ms", "-q", "job", "--", "sh", "-c", &script];
    Lease::start(&arguments, folder, "sqlite:leases.db")
}

fn holder(slots: &[Lease]) -> Option<usize> {
    slots.iter().position(|slot| slot.children().len() == 2)
}

fn kill_at_random(slot: &Lease, random: &mut Random) -> Option<Pid> {
    let children = slot.children();
    let (keeper, command) = (children.first().copied(), children.get(1).copied());
    match random.below(4) {
        0 => command.into_iter().for_each(kill),
        1 => {
            kill(slot.id());
            command.into_iter().for_each(kill);
        }
        2 => {
            command.into_iter().for_each(kill);
            kill(slot.id());
        }
        _ => kill(slot.id()),
    }
    keeper
}

fn kill_holders(folder: &Path, kills: u64) -> Longest {
    let (gate, mut random) = (Gate::at(folder), Random::new(0));
    let mut slots = [start(folder), start(folder)];
    let mut longest = Longest::default();
    for _number in 0..kills {
        if random.below(5) == 0 {
            // The process starts or waits during this time.
            thread::sleep(Duration::from_millis(random.below(30)));
            kill(slots[1].id());
            slots[1] = start(folder);
        }
        let mut held = None;
        until("a slot holds the key", || {
            held = holder(&slots);
            held.is_some()
        });
        thread::sleep(Duration::from_millis(random.below(150)));
        let victim = held.unwrap();
        let token = slots[victim].token();
        let start_of_kill = running_time();
        let group = kill_at_random(&slots[victim], &mut random);
        until("the command has ended", || {
            group.is_none_or(|group| members(group).iter().all(|member| *member == group))
        });
        longest.life = longest.life.max(running_time() - start_of_kill);
        let is_idle = std::env::var_os("LEASE_KILLS").is_some();
        let allowed = if is_idle { ALLOWED } else { ALLOWED_IF_BUSY };
        assert!(longest.life <= TTL + allowed, "a command outlived its lease: {longest:?}");
        slots[victim] = start(folder);
        until("another command runs", || gate.largest() > token);
        longest.held = longest.held.max(running_time() - start_of_kill);
    }
    longest
}

#[test]
fn killed_processes_leave_no_command_and_no_lease() {
    let folder = tempfile::tempdir_in(memory_folder()).unwrap();
    let kills = count("LEASE_KILLS", 20);

    let longest = kill_holders(folder.path(), kills);

    println!("{kills} kills: {longest:?}");
    let overlaps = Gate::at(folder.path()).overlaps();
    assert!(overlaps.is_empty(), "two commands ran at once: {overlaps}");
}
