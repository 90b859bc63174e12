//! The commands and signals of each single fault.

use std::time::Duration;

use lease_test_servers::redis::RedisSentinel;

use crate::failure::Failure;
use crate::faults::episodes::{Episodes, Outcome};
use crate::faults::single_fault::SingleFault;
use crate::judge::observations::Slice;
use crate::monotonic::Monotonic;
use crate::probe::process::Purpose;
use crate::servers::plain::PlainConnection;
use crate::servers::topology::Host;
use crate::setup::Sabotage;
use crate::store::Store;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    Hang,
    Kill,
}

impl Episodes {
    pub(crate) fn make(&mut self, fault: SingleFault) -> Result<Outcome, Failure> {
        let shard = self.chance.below(self.topology.shards.len());
        let master = self.master(shard)?;
        let sentinel = self.chance.below(self.topology.sentinels.len());
        match fault {
            SingleFault::HangFirst => self.fault_host(self.topology.first(), Harm::Hang),
            SingleFault::HangSentinel => self.fault_host(Host::Sentinel(sentinel), Harm::Hang),
            SingleFault::KillSentinel => self.fault_host(Host::Sentinel(sentinel), Harm::Kill),
            SingleFault::HangReplica | SingleFault::KillReplica => {
                let replica = self.replica(shard)?;
                let hangs = fault == SingleFault::HangReplica;
                self.fault_host(replica, if hangs { Harm::Hang } else { Harm::Kill })
            }
            SingleFault::HangMaster => self.fault_host(Host::Server(master), Harm::Hang),
            SingleFault::KillMaster => self.fault_host(Host::Server(master), Harm::Kill),
            SingleFault::Failover => self.fail_over(shard),
            SingleFault::MigrateSlot => self.migrate_slot(shard),
            SingleFault::KillConnections => self.kill_all_connections(),
            SingleFault::FillMemory => self.fill_memory(shard),
            SingleFault::HangMinority => self.hang_minority(),
            SingleFault::ClockForward => {
                let seconds = 3 + i64::try_from(self.chance.below(10))?;
                self.step_clock(seconds)
            }
            SingleFault::ClockBack => {
                let seconds = 1 + i64::try_from(self.chance.below(10))?;
                self.step_clock(-seconds)
            }
        }
    }

    fn replica(&mut self, shard: usize) -> Result<Host, Failure> {
        let master = self.master(shard)?;
        let mut members = self.topology.members(shard);
        members.retain(|member| *member != master);
        let place = self.chance.below(members.len());
        members.get(place).map(|member| Host::Server(*member)).ok_or_else(|| "no replica".into())
    }

    /// Hangs or kills a host until leases have expired and its successor is promoted. The fault is
    /// brief if no replica can replace the host.
    fn fault_host(&mut self, host: Host, harm: Harm) -> Result<Outcome, Failure> {
        let mut outcome = Outcome { to: host.to_string(), ..Outcome::default() };
        let masters = self.masters()?;
        let shard = match host {
            Host::Server(number) if masters.contains(&number) => self.topology.shard_of(number),
            _ => None,
        };
        outcome.hit.extend(shard);
        let server = self.topology.get(host)?;
        match harm {
            Harm::Hang => server.hang(),
            Harm::Kill => server.kill(),
        }
        self.pass(Duration::from_secs(1))?;
        // Clients that reconnect now try the silent host first, as new processes do.
        for master in masters {
            if Host::Server(master) != host {
                self.kill_connections(master)?;
            }
        }
        let newcomer = self.probe("newcomer", Purpose::Newcomer)?;
        let alone = shard.is_some_and(|shard| self.topology.members(shard).len() == 1);
        let (length, promoted) = if alone { (BRIEF, None) } else { (OUTLASTING, shard) };
        self.pass(length)?;
        if let (Some(shard), Host::Server(former)) = (promoted, host) {
            self.await_promotion(shard, former)?;
            self.pass(LONG_AFTER)?;
        }
        let server = self.topology.get(host)?;
        match harm {
            Harm::Hang => server.go_on(),
            Harm::Kill => server.start_again(),
        }
        if harm == Harm::Hang && promoted.is_some() {
            // The former master accepts writes until it learns of the promotion.
            outcome.forgot = Some(Monotonic::now() + Duration::from_secs(1));
        }
        if alone {
            self.pass(LONG_AFTER)?;
        }
        drop(newcomer);
        Ok(outcome)
    }

    fn kill_connections(&self, server: usize) -> Result<(), Failure> {
        let mut plain = PlainConnection::to(self.topology.server(server)?.address(), PATIENCE);
        for kind in ["normal", "pubsub"] {
            plain.first(&format!("CLIENT KILL TYPE {kind}"));
        }
        Ok(())
    }

    fn kill_all_connections(&mut self) -> Result<Outcome, Failure> {
        for _ in 0..3 {
            for server in 0..self.topology.servers.len() {
                self.kill_connections(server)?;
            }
            self.pass(Duration::from_secs(2))?;
        }
        Ok(Outcome { to: "all servers".to_owned(), ..Outcome::default() })
    }

    fn fail_over(&mut self, shard: usize) -> Result<Outcome, Failure> {
        let former = self.master(shard)?;
        let (host, command) = match self.setup.store {
            Store::Sentinel => {
                (Host::Sentinel(0), format!("SENTINEL FAILOVER {}", RedisSentinel::MASTER))
            }
            _ => (self.replica(shard)?, "CLUSTER FAILOVER".to_owned()),
        };
        let address = self.topology.get(host)?.address();
        // A Sentinel refuses a failover shortly after the last failover.
        for _ in 0..30 {
            if PlainConnection::to(address, PATIENCE).first(&command) == "OK" {
                break;
            }
            self.pass(Duration::from_secs(1))?;
        }
        let newcomer = self.probe("newcomer", Purpose::Newcomer)?;
        self.await_promotion(shard, former)?;
        self.pass(LONG_AFTER)?;
        drop(newcomer);
        let to = Host::Server(former).to_string();
        Ok(Outcome { to, hit: [shard].into(), ..Outcome::default() })
    }

    fn fill_memory(&mut self, shard: usize) -> Result<Outcome, Failure> {
        let members = self.topology.members(shard);
        let from = Monotonic::now();
        for &member in &members {
            self.topology.server(member)?.command("CONFIG SET maxmemory 1");
        }
        self.pass(OUTLASTING)?;
        let until = Monotonic::now();
        for &member in &members {
            self.topology.server(member)?.command("CONFIG SET maxmemory 0");
        }
        // The time limit for a grant counts from `until`, just before the first command that frees
        // memory.
        self.pass(LONG_AFTER)?;
        let to = format!("shard {}", shard + 1);
        Ok(Outcome { to, full: Some((shard, from, until)), ..Outcome::default() })
    }

    /// Moves the slot of a shard's probes to the next shard, and back, while clients use its keys
    /// on both shards.
    fn migrate_slot(&mut self, shard: usize) -> Result<Outcome, Failure> {
        let next = (shard + 1) % self.topology.shards.len();
        let slot = self.topology.slot(shard);
        let (here, there) = (self.master(shard)?, self.master(next)?);
        self.move_slot(slot, here, there)?;
        self.pass(Duration::from_secs(2))?;
        self.move_slot(slot, there, here)?;
        self.pass(LONG_AFTER)?;
        let to = format!("slot {slot}, from server {} to server {}", here + 1, there + 1);
        // If the clocks differ, one of the two moves is to a server whose clock is ahead. This move
        // ends leases early.
        let clocks_differ = self.clocks.get(here) != self.clocks.get(there);
        let hit = clocks_differ.then_some(shard).into_iter().collect();
        Ok(Outcome { to, hit, ..Outcome::default() })
    }

    fn move_slot(&mut self, slot: u16, source: usize, target: usize) -> Result<(), Failure> {
        let plain = |server: usize| -> Result<PlainConnection, Failure> {
            Ok(PlainConnection::to(self.topology.server(server)?.address(), PATIENCE))
        };
        let (mut from, mut to) = (plain(source)?, plain(target)?);
        let mut others = self.masters()?.into_iter().map(plain).collect::<Result<Vec<_>, _>>()?;
        let port = self.topology.server(target)?.port();
        let (source, target) = (from.first("CLUSTER MYID"), to.first("CLUSTER MYID"));
        to.first(&format!("CLUSTER SETSLOT {slot} IMPORTING {source}"));
        from.first(&format!("CLUSTER SETSLOT {slot} MIGRATING {target}"));
        self.pass(LONG_AFTER)?;
        for _ in 0..MOST_KEYS {
            let keys = from.ask(&format!("CLUSTER GETKEYSINSLOT {slot} 1"))?;
            let Some(key) = keys.first() else { break };
            from.first(&format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"));
            self.pass(Duration::from_millis(100))?;
        }
        to.first(&format!("CLUSTER SETSLOT {slot} NODE {target}"));
        from.first(&format!("CLUSTER SETSLOT {slot} NODE {target}"));
        for other in &mut others {
            other.first(&format!("CLUSTER SETSLOT {slot} NODE {target}"));
        }
        Ok(())
    }

    /// Hangs a minority several times. The judge compares the grants with the times between the
    /// hangs.
    fn hang_minority(&mut self) -> Result<Outcome, Failure> {
        let all = self.topology.servers.len();
        let minority = match self.setup.sabotage {
            Some(Sabotage::Majority) => all / 2 + 1,
            _ => all / 2,
        };
        let hung = self.chance.some_of(all, minority);
        let mut slices = Vec::new();
        for number in 0..=2 * HANGS {
            let is_hung = number % 2 == 1;
            if is_hung {
                for &server in &hung {
                    self.topology.get(Host::Server(server))?.hang();
                }
            }
            let from = Monotonic::now();
            self.pass(SLICE)?;
            slices.push(Slice { hung: is_hung, from, until: Monotonic::now() });
            if is_hung {
                for &server in &hung {
                    self.topology.get(Host::Server(server))?.go_on();
                }
            }
        }
        Ok(Outcome { to: format!("{minority} of {all} servers"), slices, ..Outcome::default() })
    }

    fn step_clock(&mut self, seconds: i64) -> Result<Outcome, Failure> {
        let all = self.topology.servers.len();
        let count = if self.setup.store == Store::Quorum { all } else { 1 };
        let mut outcome = Outcome::default();
        let masters = self.masters()?;
        let mut named = Vec::new();
        for number in self.chance.some_of(all, count) {
            let clock = self.clocks.get_mut(number).ok_or("there is no such clock")?;
            *clock += seconds;
            self.topology.server(number)?.set_clock(&format!("{clock:+}"));
            named.push(format!("{} to {clock:+} s", number + 1));
            // A forward step ends leases early, or causes a promotion. A step back only prolongs
            // leases.
            if seconds > 0 && (count > 1 || masters.contains(&number)) {
                outcome.hit.extend(self.topology.shard_of(number));
            }
        }
        outcome.to = format!("server {}", named.join(", "));
        outcome.forgot = (!outcome.hit.is_empty()).then(Monotonic::now);
        self.pass(OUTLASTING)?;
        Ok(outcome)
    }
}

/// Longer than the ttl of the kept lease and its grace.
const OUTLASTING: Duration = Duration::from_secs(9);

const BRIEF: Duration = Duration::from_secs(3);

/// Longer than the bound for a grant, so that a missing grant is found.
const LONG_AFTER: Duration = Duration::from_secs(7);

/// With a hung minority, and in the healthy times between the hangs.
const SLICE: Duration = Duration::from_secs(5);

const HANGS: usize = 3;

/// More keys than a slot has.
const MOST_KEYS: usize = 500;

const PATIENCE: Duration = Duration::from_secs(5);
