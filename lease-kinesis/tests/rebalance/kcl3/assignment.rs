//! One run of the leader, which assigns leases to workers.

use std::collections::BTreeMap;

use rand::seq::SliceRandom;

use super::{By, Kcl3, REPORT, whole};
use crate::fleet::{Millis, by_count};
use crate::model::FAILOVER;

impl Kcl3 {
    /// `LeaseAssignmentManager.performAssignment`
    pub(super) fn assign_all(&mut self, now: Millis) {
        self.parts.costs.reads += (self.parts.leases.len() + self.metrics.len()) as u64;
        let leader = self.leader.as_mut().unwrap();
        let mut free = Vec::new();
        for (lease, row) in self.parts.leases.iter().enumerate() {
            if row.has_ended {
                continue;
            }
            if row.owner.is_none() {
                free.push(lease);
                continue;
            }
            let (counter, since) = leader.seen.entry(lease).or_insert((row.counter, now));
            if *counter != row.counter {
                (*counter, *since) = (row.counter, now);
            }
            if now - *since > FAILOVER {
                free.push(lease);
            }
        }
        let balance = leader.runs.is_multiple_of(VARIANCE_PASS);
        leader.runs += 1;
        let active = self.metrics.iter().filter(|(_, metric)| now - metric.reported <= STALE);
        let active: BTreeMap<_, _> = active.map(|(worker, metric)| (*worker, metric.cpu)).collect();
        if active.is_empty() {
            return;
        }
        match self.by {
            By::Count => self.assign_by_count(&free, &active),
            By::Variance => self.assign_by_variance(&free, active, balance),
        }
    }

    fn counts(&self, free: &[usize], active: &BTreeMap<usize, f64>) -> BTreeMap<usize, usize> {
        let mut counts: BTreeMap<_, _> = active.keys().map(|worker| (*worker, 0)).collect();
        let owned = (0..self.parts.leases.len()).filter(|lease| !free.contains(lease));
        for owner in owned.filter_map(|lease| self.parts.leases[lease].owner) {
            counts.entry(owner).and_modify(|count| *count += 1);
        }
        counts
    }

    /// Moves leases beyond the rounded-up average, and free leases, to workers below the average. If no
    /// worker exceeds the average, a new worker may get no lease.
    fn assign_by_count(&mut self, free: &[usize], active: &BTreeMap<usize, f64>) {
        let open = self.parts.leases.iter().filter(|lease| !lease.has_ended).count();
        let target = open.div_ceil(active.len());
        let mut counts = self.counts(free, active);
        let mut given: Vec<_> = free.iter().map(|lease| (*lease, false)).collect();
        for (worker, count) in by_count(&counts) {
            let mut its = self.leases_to_take(worker);
            let surplus = count.saturating_sub(target).min(its.len());
            its.truncate(surplus);
            given.extend(its.into_iter().map(|lease| (lease, true)));
            counts.insert(worker, count - surplus);
        }
        let mut given = given.into_iter();
        for (worker, count) in by_count(&counts).into_iter().rev() {
            for (lease, gracefully) in given.by_ref().take(target.saturating_sub(count)) {
                self.give(lease, worker, gracefully);
            }
        }
    }

    /// Assigns each free lease to the worker with the least load. In each third run, if a load is too far
    /// from the mean, the leader also moves leases of the busier workers.
    fn assign_by_variance(
        &mut self,
        free: &[usize],
        mut active: BTreeMap<usize, f64>,
        balance: bool,
    ) {
        let counts = self.counts(free, &active);
        let lightest = |active: &BTreeMap<usize, f64>| {
            let least = active.iter().min_by(|one, other| one.1.total_cmp(other.1));
            least.map(|(worker, _)| *worker).unwrap()
        };
        let held: usize = counts.values().sum();
        let all: f64 = active.values().sum();
        let a_lease = if held == 0 { self.cpu_of_lease } else { all / whole(held) };
        for lease in free {
            let worker = lightest(&active);
            self.give(*lease, worker, false);
            *active.get_mut(&worker).unwrap() += a_lease;
        }

        let mean = active.values().sum::<f64>() / whole(active.len());
        let far = |cpu: &f64| *cpu > mean * (1.0 + THRESHOLD) || *cpu < mean * (1.0 - THRESHOLD);
        if !balance || !active.values().any(far) {
            return;
        }
        let mut hot: Vec<_> = active.iter().filter(|(_, cpu)| **cpu > mean).collect();
        hot.sort_by(|one, other| other.1.total_cmp(one.1));
        let hot: Vec<_> = hot.into_iter().map(|(worker, cpu)| (*worker, *cpu)).collect();
        for (worker, cpu) in hot {
            let its = self.leases_to_take(worker);
            let fit = DAMPENING * whole(its.len()) * (cpu - mean) / cpu;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
            let count = (fit as usize).max(1);
            for lease in its.into_iter().take(count) {
                let receiver = lightest(&active);
                if active[&receiver] + a_lease > mean {
                    return;
                }
                self.give(lease, receiver, true);
                *active.get_mut(&receiver).unwrap() += a_lease;
            }
        }
    }

    fn leases_to_take(&mut self, worker: usize) -> Vec<usize> {
        let its = |lease: &usize| {
            let row = &self.parts.leases[*lease];
            row.owner == Some(worker) && row.hands_over.is_none()
        };
        let mut its: Vec<_> = (0..self.parts.leases.len()).filter(its).collect();
        its.shuffle(&mut self.parts.random);
        its
    }

    fn give(&mut self, lease: usize, worker: usize, gracefully: bool) {
        self.parts.costs.writes += 1;
        let row = &mut self.parts.leases[lease];
        row.hands_over = row.owner.filter(|_| gracefully);
        row.owner = Some(worker);
        if !gracefully {
            row.counter += 1;
        }
    }
}

/// `varianceBalancingFrequency`
const VARIANCE_PASS: u64 = 3;

/// The leader ignores older loads.
const STALE: Millis = 2 * REPORT;

/// `reBalanceThresholdPercentage`
const THRESHOLD: f64 = 0.1;

/// `dampeningPercentage`
const DAMPENING: f64 = 0.6;
