//! Counted time: the time in which both the store and the judged process ran.

use std::time::Duration;

use crate::monotonic::Monotonic;

/// Disjoint intervals in order, each with the total length of the earlier intervals.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    intervals: Vec<(Monotonic, Monotonic)>,
    before: Vec<Duration>,
}

impl Counted {
    /// Returns the time between beats that follow each other within [`GAP`]. A beat proves that the
    /// store or process ran. A longer gap does not count: no beat shows when the machine stopped
    /// and continued.
    pub(crate) fn between_beats(beats: &[Monotonic]) -> Self {
        let mut intervals: Vec<(Monotonic, Monotonic)> = Vec::new();
        for (&from, &until) in beats.iter().zip(beats.iter().skip(1)) {
            if until.since(from) > GAP {
                continue;
            }
            match intervals.last_mut() {
                Some((_, end)) if *end == from => *end = until,
                _ => intervals.push((from, until)),
            }
        }
        Self::of(intervals)
    }

    fn of(intervals: Vec<(Monotonic, Monotonic)>) -> Self {
        let mut sum = Duration::ZERO;
        let mut before = Vec::with_capacity(intervals.len());
        for (from, until) in &intervals {
            before.push(sum);
            sum += until.since(*from);
        }
        Self { intervals, before }
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        let mut both = Vec::new();
        let (mut left, mut right) =
            (self.intervals.iter().peekable(), other.intervals.iter().peekable());
        while let (Some(&&(a, b)), Some(&&(c, d))) = (left.peek(), right.peek()) {
            let (from, until) = (a.max(c), b.min(d));
            if from < until {
                both.push((from, until));
            }
            if b <= d {
                left.next();
            } else {
                right.next();
            }
        }
        Self::of(both)
    }

    pub(crate) fn without(&self, from: Monotonic, until: Monotonic) -> Self {
        let mut rest = Vec::new();
        for &(a, b) in &self.intervals {
            rest.extend([(a, b.min(from)), (a.max(until), b)].into_iter().filter(|(a, b)| a < b));
        }
        Self::of(rest)
    }

    pub(crate) fn within(&self, from: Monotonic, until: Monotonic) -> Duration {
        self.up_to(until).saturating_sub(self.up_to(from))
    }

    fn up_to(&self, moment: Monotonic) -> Duration {
        let place = self.intervals.partition_point(|(from, _)| *from < moment);
        let Some(last) = place.checked_sub(1) else { return Duration::ZERO };
        let (Some(before), Some((from, until))) = (self.before.get(last), self.intervals.get(last))
        else {
            return Duration::ZERO;
        };
        *before + moment.min(*until).since(*from)
    }
}

/// Beats are due every 50 ms. After a longer gap, the machine or the store was stopped.
pub(crate) const GAP: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    fn beats(start: Monotonic, millis: &[u64]) -> Vec<Monotonic> {
        millis.iter().map(|&at| start + Duration::from_millis(at)).collect()
    }

    #[test]
    fn time_without_beats_does_not_count() {
        let start = Monotonic::now();
        let counted = Counted::between_beats(&beats(start, &[0, 100, 200, 5200, 5300]));

        assert_eq!(
            counted.within(start, start + Duration::from_secs(9)),
            Duration::from_millis(300)
        );
        let middle = start + Duration::from_millis(150);
        assert_eq!(
            counted.within(middle, start + Duration::from_secs(4)),
            Duration::from_millis(50)
        );
    }

    #[test]
    fn time_counts_only_with_beats_in_both() {
        let start = Monotonic::now();
        let one = Counted::between_beats(&beats(start, &[0, 100, 200, 300, 400]));
        let other = Counted::between_beats(&beats(start, &[150, 250, 350, 1000, 1100]));

        let both = one.and(&other);

        assert_eq!(both.within(start, start + Duration::from_secs(2)), Duration::from_millis(200));
        let (from, until) =
            (start + Duration::from_millis(200), start + Duration::from_millis(300));
        let rest = both.without(from, until);
        assert_eq!(rest.within(start, start + Duration::from_secs(2)), Duration::from_millis(100));
    }
}
