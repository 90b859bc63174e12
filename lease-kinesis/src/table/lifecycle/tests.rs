mod keeping;
mod lives;
mod making;

use super::*;
use crate::position::{RecordNumber, SequenceNumber};

#[derive(Debug, Default, Clone)]
struct Stream {
    /// All shards in the order of their creation.
    all: Vec<Shard>,
    dropped: BTreeSet<ShardId>,
}

impl Stream {
    fn of(count: u128) -> Self {
        let mut stream = Self::default();
        let width = u128::MAX / count;
        for number in 0..count {
            let last = if number + 1 == count { u128::MAX } else { (number + 1) * width - 1 };
            stream.add(&[], HashKeyRange::new(number * width, last).unwrap());
        }
        stream
    }

    fn add(&mut self, parents: &[usize], hash_keys: HashKeyRange) -> usize {
        let number = sequence(self.all.len());
        for parent in parents {
            self.all[*parent].ends = Some(number.clone());
        }
        let parents = parents.iter().map(|parent| id(*parent)).collect();
        let (id, begins) = (id(self.all.len()), number);
        self.all.push(Shard { id, parents, hash_keys, begins, ends: None });
        self.all.len() - 1
    }

    fn split(&mut self, shard: usize) -> [usize; 2] {
        let (first, last) = (self.all[shard].hash_keys.first(), self.all[shard].hash_keys.last());
        let middle = first + (last - first) / 2;
        [(first, middle), (middle + 1, last)]
            .map(|(first, last)| self.add(&[shard], HashKeyRange::new(first, last).unwrap()))
    }

    fn merge(&mut self, [lower, upper]: [usize; 2]) -> usize {
        let first = self.all[lower].hash_keys.first();
        let last = self.all[upper].hash_keys.last();
        self.add(&[lower, upper], HashKeyRange::new(first, last).unwrap())
    }

    /// Kinesis drops a shard after its records have expired.
    fn drop(&mut self, shard: usize) {
        self.dropped.insert(id(shard));
    }

    fn listed(&self) -> Vec<Shard> {
        let kept = self.all.iter().filter(|shard| !self.dropped.contains(&shard.id));
        kept.cloned().collect()
    }

    fn open(&self) -> Vec<usize> {
        let mut open: Vec<_> = (0..self.all.len()).filter(|at| self.all[*at].is_open()).collect();
        open.sort_by_key(|at| self.all[*at].hash_keys);
        open
    }

    fn row(&self, shard: usize, checkpoint: Position) -> (ShardId, RowState) {
        let Shard { id, parents, hash_keys, .. } = self.all[shard].clone();
        (id, RowState { checkpoint, parents: parents.into_iter().collect(), hash_keys })
    }

    fn rows<const N: usize>(&self, rows: [(usize, Position); N]) -> Rows {
        rows.into_iter().map(|(shard, checkpoint)| self.row(shard, checkpoint)).collect()
    }

    fn missing(&self, rows: &Rows, initial: InitialPosition) -> Vec<(usize, Position)> {
        let missing = missing(&self.listed(), rows, initial);
        missing.into_iter().map(|(shard, position)| (number(&shard.id), position)).collect()
    }

    fn obsolete(&self, rows: &Rows) -> Vec<usize> {
        obsolete(&self.listed(), rows, &[]).iter().map(|(shard, _)| number(shard)).collect()
    }

    fn why_obsolete(&self, rows: &Rows) -> Vec<(usize, Obsolete)> {
        let obsolete = obsolete(&self.listed(), rows, &[]);
        obsolete.into_iter().map(|(shard, why)| (number(&shard), why)).collect()
    }
}

fn id(number: usize) -> ShardId {
    format!("shardId-{number:012}").parse().unwrap()
}

fn number(id: &ShardId) -> usize {
    id.as_str().trim_start_matches("shardId-").parse().unwrap()
}

fn sequence(number: usize) -> SequenceNumber {
    number.to_string().parse().unwrap()
}

fn record() -> Position {
    Position::Record(RecordNumber::new(sequence(7)))
}

const NOTHING: [usize; 0] = [];

const LATEST: InitialPosition = InitialPosition::Latest;
const TRIM_HORIZON: InitialPosition = InitialPosition::TrimHorizon;
