//! A placeholder for this crate's own worker: what `plan` comes to where every worker acts on its
//! own lines of it, as `Worker` does.
//!
//! A tick is a third of the ttl; a join counts when it was seen at two ticks, a death when its
//! lease has run out; whoever is handed a lease sees it at its next tick.

use std::collections::{BTreeMap, BTreeSet};

use lease_core::{LeaseKey, Lessee};
use lease_kinesis::{Member, Standing, plan};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::fleet::{Agenda, Costs, Fleet, Millis, Readers};

pub(crate) struct ByPlan {
    keys: Vec<LeaseKey>,
    leases: Vec<Lease>,
    /// Each worker's own row.
    rows: BTreeMap<usize, Row>,
    workers: BTreeMap<usize, Worker>,
    /// What the plan was for what was seen: all workers that see the same plan the same.
    planned: Option<(View, Vec<Option<usize>>)>,
    agenda: Agenda<Deed>,
    readers: Readers,
    costs: Costs,
    random: StdRng,
}

#[derive(Default, Clone)]
struct Lease {
    holder: Option<usize>,
    runs_out: Millis,
}

struct Row {
    leaves: bool,
    runs_out: Millis,
}

#[derive(Default)]
struct Worker {
    paused_until: Millis,
    reads: BTreeSet<usize>,
    hands_over: BTreeSet<usize>,
    /// How often it has seen each of the others.
    seen: BTreeMap<usize, u32>,
}

/// Who holds each lease, and who leaves, of those who count.
type View = (Vec<Option<usize>>, BTreeMap<usize, bool>);

enum Deed {
    Wake(usize),
    Tick(usize),
    HandOver { worker: usize, lease: usize, to: Option<usize> },
}

impl ByPlan {
    pub(crate) fn new(leases: usize, seed: u64) -> Self {
        let key = |lease| LeaseKey::new(format!("shardId-{lease:012}")).unwrap();
        Self {
            keys: (0..leases).map(key).collect(),
            leases: vec![Lease::default(); leases],
            rows: BTreeMap::new(),
            workers: BTreeMap::new(),
            planned: None,
            agenda: Agenda::new(),
            readers: Readers::none(leases),
            costs: Costs::default(),
            random: StdRng::seed_from_u64(seed),
        }
    }

    fn tick(&mut self, me: usize, now: Millis) {
        self.heartbeat(me, now);
        let Some(view) = self.look(me, now) else { return };
        let planned = self.plan(view.clone());
        let worker = self.workers.get_mut(&me).unwrap();
        for (lease, (holder, to)) in view.0.into_iter().zip(planned).enumerate() {
            if holder != Some(me) && to != Some(me) {
                continue;
            }
            if holder == Some(me) && !worker.reads.contains(&lease) {
                // It was handed over since the last tick.
                worker.reads.insert(lease);
                self.readers.start(lease, me);
            }
            if holder.is_none() && to == Some(me) {
                self.costs.writes += 1;
                self.leases[lease] = Lease { holder: Some(me), runs_out: now + TTL };
                worker.reads.insert(lease);
                self.readers.start(lease, me);
            }
            let gives = worker.reads.contains(&lease) && holder == Some(me) && to != Some(me);
            if gives && worker.hands_over.insert(lease) {
                self.agenda.at(now + HAND_OVER, Deed::HandOver { worker: me, lease, to });
            }
        }
        if worker.reads.is_empty() && self.rows[&me].leaves {
            self.costs.writes += 1;
            self.rows.remove(&me);
            self.workers.remove(&me);
        }
    }

    fn heartbeat(&mut self, me: usize, now: Millis) {
        self.costs.writes += 1;
        self.rows.get_mut(&me).unwrap().runs_out = now + TTL;
        let worker = self.workers.get_mut(&me).unwrap();
        self.costs.writes += worker.reads.len() as u64;
        for lease in worker.reads.clone() {
            let row = &mut self.leases[lease];
            if row.holder == Some(me) && row.runs_out > now {
                row.runs_out = now + TTL;
            } else {
                worker.reads.remove(&lease);
                worker.hands_over.remove(&lease);
                self.readers.stop(lease, me);
            }
        }
    }

    /// What is in the table; `None` where it does not count yet itself.
    fn look(&mut self, me: usize, now: Millis) -> Option<View> {
        self.costs.reads += (self.rows.len() + self.leases.len()) as u64;
        let live: BTreeMap<_, _> = self
            .rows
            .iter()
            .filter(|(_, row)| row.runs_out > now)
            .map(|(worker, row)| (*worker, row.leaves))
            .collect();
        let seen = &mut self.workers.get_mut(&me).unwrap().seen;
        seen.retain(|other, _| live.contains_key(other));
        for other in live.keys() {
            *seen.entry(*other).or_default() += 1;
        }
        let counting = live.into_iter().filter(|(other, _)| seen[other] >= 2).collect();
        let holder = |lease: &Lease| lease.holder.filter(|_| lease.runs_out > now);
        let view = (self.leases.iter().map(holder).collect(), counting);
        (seen[&me] >= 2).then_some(view)
    }

    fn plan(&mut self, view: View) -> Vec<Option<usize>> {
        if let Some((last, planned)) = &self.planned
            && *last == view
        {
            return planned.clone();
        }
        let name = |worker: usize| Lessee::new(format!("worker-{worker}")).unwrap();
        let number = |name: &Lessee| name.as_str()["worker-".len()..].parse().unwrap();
        let held = self.keys.iter().cloned().zip(view.0.iter().map(|holder| holder.map(name)));
        let members = view.1.iter().map(|(worker, leaves)| {
            let mut member = Member::new(name(*worker));
            if *leaves {
                member.standing = Standing::Leaving;
            }
            member
        });
        let planned = plan(&held.collect(), &members.collect::<Vec<_>>());
        let planned: Vec<_> = self.keys.iter().map(|key| planned.get(key).map(number)).collect();
        self.planned = Some((view, planned.clone()));
        planned
    }

    fn hand_over(&mut self, me: usize, lease: usize, to: Option<usize>, now: Millis) {
        let worker = self.workers.get_mut(&me).unwrap();
        if !worker.hands_over.remove(&lease) {
            return;
        }
        worker.reads.remove(&lease);
        self.readers.stop(lease, me);
        self.costs.writes += 1;
        // Kept for the next for as long as a lease lasts.
        self.leases[lease] = Lease { holder: to, runs_out: now + TTL };
        if worker.reads.is_empty() && self.rows[&me].leaves {
            self.costs.writes += 1;
            self.rows.remove(&me);
            self.workers.remove(&me);
        }
    }
}

impl Fleet for ByPlan {
    fn next(&self) -> Option<Millis> {
        self.agenda.next()
    }

    fn step(&mut self, now: Millis) {
        while let Some((when, deed)) = self.agenda.due(now) {
            let (Deed::Wake(worker) | Deed::Tick(worker) | Deed::HandOver { worker, .. }) = deed;
            let Some(Worker { paused_until, .. }) = self.workers.get(&worker) else { continue };
            if *paused_until > when {
                self.agenda.at(*paused_until, deed);
                continue;
            }
            match deed {
                Deed::Wake(worker) => {
                    // It knows when its leases run out, and goes on with those that have not.
                    for lease in &self.workers[&worker].reads {
                        let row = &self.leases[*lease];
                        if row.holder == Some(worker) && row.runs_out > when {
                            self.readers.go_on(*lease, worker);
                        }
                    }
                }
                Deed::Tick(worker) => {
                    self.tick(worker, when);
                    self.agenda.at(when + TICK, deed);
                }
                Deed::HandOver { worker, lease, to } => self.hand_over(worker, lease, to, when),
            }
        }
    }

    fn join(&mut self, now: Millis, worker: usize) {
        let begins = now + self.random.random_range(0..1_000);
        self.workers.insert(worker, Worker::default());
        self.rows.insert(worker, Row { leaves: false, runs_out: 0 });
        self.agenda.at(begins, Deed::Tick(worker));
    }

    fn crash(&mut self, _: Millis, worker: usize) {
        self.workers.remove(&worker);
        self.readers.stop_all(worker);
    }

    fn leave(&mut self, now: Millis, worker: usize) {
        self.rows.get_mut(&worker).unwrap().leaves = true;
        // It does not wait for its next tick.
        self.agenda.at(now, Deed::Tick(worker));
    }

    fn pause(&mut self, now: Millis, worker: usize, length: Millis) {
        self.readers.stop_all(worker);
        self.agenda.at(now + length, Deed::Wake(worker));
        self.workers.get_mut(&worker).unwrap().paused_until = now + length;
    }

    fn leader(&self) -> Option<usize> {
        None
    }

    fn who_reads(&self) -> &Readers {
        &self.readers
    }

    fn costs(&self) -> Costs {
        self.costs
    }
}

/// The time after which others count a worker as gone, as in the other rules.
const TTL: Millis = 10_000;

const TICK: Millis = TTL / 3;

/// What a processor needs to shut down. An assumption, the same for all rules.
const HAND_OVER: Millis = 2_000;
