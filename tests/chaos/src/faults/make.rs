//! What each kind of fault does to the servers.

use std::time::Duration;

use lease_tests::redis::RedisSentinel;

use crate::Failure;
use crate::episodes::{Episodes, Outcome};
use crate::fault_kind::FaultKind;
use crate::observations::Slice;
use crate::plain::Plain;
use crate::probes::Purpose;
use crate::setup::{Sabotage, Store};
use crate::stamp::Stamp;
use crate::topology::Host;

/// Whether a host that is hurt answers again when it is let go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    Hang,
    Kill,
}

impl Episodes {
    /// Makes a fault, and ends it.
    pub(crate) fn make(&mut self, fault: FaultKind) -> Result<Outcome, Failure> {
        let shard = self.chance.below(self.topology.shards.len());
        let master = self.master(shard)?;
        let sentinel = self.chance.below(self.topology.sentinels.len());
        match fault {
            FaultKind::HangFirst => self.hurt_host(self.topology.first(), Harm::Hang),
            FaultKind::HangSentinel => self.hurt_host(Host::Sentinel(sentinel), Harm::Hang),
            FaultKind::KillSentinel => self.hurt_host(Host::Sentinel(sentinel), Harm::Kill),
            FaultKind::HangReplica | FaultKind::KillReplica => {
                let replica = self.replica(shard)?;
                let hangs = fault == FaultKind::HangReplica;
                self.hurt_host(replica, if hangs { Harm::Hang } else { Harm::Kill })
            }
            FaultKind::HangMaster => self.hurt_host(Host::Server(master), Harm::Hang),
            FaultKind::KillMaster => self.hurt_host(Host::Server(master), Harm::Kill),
            FaultKind::Failover => self.fail_over(shard),
            FaultKind::MigrateSlot => self.migrate_slot(shard),
            FaultKind::KillConnections => self.kill_all_connections(),
            FaultKind::FillMemory => self.fill_memory(shard),
            FaultKind::HangMinority => self.hang_minority(),
            FaultKind::ClockForward => {
                let seconds = 3 + i64::try_from(self.chance.below(10))?;
                self.step_clock(seconds)
            }
            FaultKind::ClockBack => {
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

    /// Hangs or kills a host until leases would have run out, and until its successor is promoted.
    fn hurt_host(&mut self, host: Host, harm: Harm) -> Result<Outcome, Failure> {
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
        // Who reconnects meanwhile meets the silent host, as does who starts.
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
            // It takes itself for the master until it hears of the promotion.
            outcome.forgot = Some(Stamp::now() + Duration::from_secs(1));
        }
        if alone {
            self.pass(LONG_AFTER)?;
        }
        drop(newcomer);
        Ok(outcome)
    }

    fn kill_connections(&self, server: usize) -> Result<(), Failure> {
        let mut plain = Plain::to(self.topology.server(server)?.address(), PATIENCE);
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
        // A Sentinel refuses where the last failover was a moment ago.
        for _ in 0..30 {
            if Plain::to(address, PATIENCE).first(&command) == "OK" {
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

    /// Fills the memory of a shard, of all its servers, for longer than a lease lasts.
    fn fill_memory(&mut self, shard: usize) -> Result<Outcome, Failure> {
        let members = self.topology.members(shard);
        let from = Stamp::now();
        for &member in &members {
            self.topology.server(member)?.command("CONFIG SET maxmemory 1");
        }
        self.pass(OUTLASTING)?;
        let until = Stamp::now();
        for &member in &members {
            self.topology.server(member)?.command("CONFIG SET maxmemory 0");
        }
        // From here on: memory is freed at the first of the commands or later.
        self.pass(LONG_AFTER)?;
        let to = format!("shard {}", shard + 1);
        Ok(Outcome { to, full: Some((shard, from, until)), ..Outcome::default() })
    }

    /// Moves the slot of a shard's probes to the next shard, and back. Clients use it meanwhile:
    /// some of its keys are there, some here.
    fn migrate_slot(&mut self, shard: usize) -> Result<Outcome, Failure> {
        let next = (shard + 1) % self.topology.shards.len();
        let slot = self.topology.slot(shard);
        let (here, there) = (self.master(shard)?, self.master(next)?);
        self.move_slot(slot, here, there)?;
        self.pass(Duration::from_secs(2))?;
        self.move_slot(slot, there, here)?;
        self.pass(LONG_AFTER)?;
        let to = format!("slot {slot}, from server {} to server {}", here + 1, there + 1);
        Ok(Outcome { to, ..Outcome::default() })
    }

    fn move_slot(&mut self, slot: u16, source: usize, target: usize) -> Result<(), Failure> {
        let plain = |server: usize| -> Result<Plain, Failure> {
            Ok(Plain::to(self.topology.server(server)?.address(), PATIENCE))
        };
        let (mut from, mut to) = (plain(source)?, plain(target)?);
        let mut others = self.masters()?.into_iter().map(plain).collect::<Result<Vec<_>, _>>()?;
        let port = self.topology.server(target)?.port();
        let (source, target) = (from.first("CLUSTER MYID"), to.first("CLUSTER MYID"));
        to.first(&format!("CLUSTER SETSLOT {slot} IMPORTING {source}"));
        from.first(&format!("CLUSTER SETSLOT {slot} MIGRATING {target}"));
        // All keys that are there are still here.
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

    /// Hangs a minority for a while, several times, with healthy times between for comparison.
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
            let from = Stamp::now();
            self.pass(SLICE)?;
            slices.push(Slice { hung: is_hung, from, until: Stamp::now() });
            if is_hung {
                for &server in &hung {
                    self.topology.get(Host::Server(server))?.go_on();
                }
            }
        }
        Ok(Outcome { to: format!("{minority} of {all} servers"), slices, ..Outcome::default() })
    }

    /// Steps the wall clock of one server; of a quorum, of all, one after another.
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
            // Leases on it end early, or it is taken for dead. One that steps back keeps them.
            if seconds > 0 && (count > 1 || masters.contains(&number)) {
                outcome.hit.extend(self.topology.shard_of(number));
            }
        }
        outcome.to = format!("server {}", named.join(", "));
        outcome.forgot = (!outcome.hit.is_empty()).then(Stamp::now);
        self.pass(OUTLASTING)?;
        Ok(outcome)
    }
}

/// Longer than the lease that is kept, with its grace.
const OUTLASTING: Duration = Duration::from_secs(9);

/// Shorter than that lease: where nobody takes over, it must be kept.
const BRIEF: Duration = Duration::from_secs(3);

/// Longer than the bound for a grant.
const LONG_AFTER: Duration = Duration::from_secs(7);

/// How long a minority hangs, and how long the healthy times between are.
const SLICE: Duration = Duration::from_secs(5);

const HANGS: usize = 3;

/// More keys than a slot has.
const MOST_KEYS: usize = 500;

const PATIENCE: Duration = Duration::from_secs(5);
