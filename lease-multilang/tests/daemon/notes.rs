//! The events that children recorded, in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use lease_kinesis::{SequenceNumber, Shard};

use lease_test_servers::stream::Put;

pub(crate) struct Notes(Vec<Note>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) child: i32,
    pub(crate) event: String,
    pub(crate) shard: String,
    words: Vec<String>,
}

impl Notes {
    pub(crate) fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap();
        let note = |line: &str| {
            let mut words = line.split('\t').map(str::to_owned);
            let child = words.next()?.parse().ok()?;
            let (event, shard) = (words.next()?, words.next()?);
            Some(Note { child, event, shard, words: words.collect() })
        };
        // A child may be writing the last line.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Self(whole.lines().map(|line| note(line).expect("a note")).collect())
    }

    pub(crate) fn of(&self, event: &str) -> Vec<&Note> {
        self.0.iter().filter(|note| note.event == event).collect()
    }

    pub(crate) fn distinct(&self) -> usize {
        self.children_by_record().len()
    }

    pub(crate) fn children(&self) -> BTreeSet<i32> {
        self.0.iter().map(|note| note.child).collect()
    }

    pub(crate) fn readers(&self) -> BTreeMap<String, i32> {
        self.of("begun").into_iter().map(|note| (note.shard.clone(), note.child)).collect()
    }

    pub(crate) fn are_right(&self, put: &Put, shards: &[Shard]) {
        self.are_complete_and_in_order(put);
        self.have_each_child_go_forward();
        self.have_no_shard_begin_before_its_parents_end(shards);
        self.have_nothing_twice_after_an_orderly_end();
    }

    /// The records of each partition key must be in order. Of a repeated record, only the first time counts.
    pub(crate) fn are_complete_and_in_order(&self, put: &Put) {
        let mut worked: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for note in self.of("record") {
            let (key, text) = (&*note.words[1], &*note.words[2]);
            if seen.insert((key, text)) {
                worked.entry(key).or_default().push(text);
            }
        }
        for (key, count) in put {
            let all: Vec<_> = (0..*count).map(|number| number.to_string()).collect();
            let worked = worked.get(&**key).cloned().unwrap_or_default();
            assert_eq!(worked, all, "records of {key}\n{self}");
        }
    }

    /// Each child must receive the records of a shard in order, and each record at most once.
    fn have_each_child_go_forward(&self) {
        let mut last: BTreeMap<_, SequenceNumber> = BTreeMap::new();
        for note in self.of("record") {
            let sequence: SequenceNumber = note.words[0].parse().unwrap();
            let before = last.insert((note.child, &note.shard), sequence.clone());
            assert!(before < Some(sequence), "{note:?} after {before:?}\n{self}");
        }
    }

    fn have_no_shard_begin_before_its_parents_end(&self, shards: &[Shard]) {
        let mut ended = BTreeSet::new();
        for note in &self.0 {
            match &*note.event {
                "ended" => drop(ended.insert(&note.shard)),
                "begun" => {
                    let shard = shards.iter().find(|shard| shard.id.as_str() == note.shard);
                    let parents = &shard.expect("a shard of the stream").parents;
                    let early = parents.iter().find(|parent| !ended.contains(&parent.to_string()));
                    assert_eq!(early, None, "{} began before its parent ended\n{self}", note.shard);
                }
                _ => (),
            }
        }
    }

    /// Checks that no record was repeated after an orderly end of the child that received it.
    pub(crate) fn have_nothing_twice_after_an_orderly_end(&self) {
        let is_orderly = |note: &&Note| matches!(&*note.event, "requested" | "ended");
        let orderly: BTreeSet<_> =
            self.0.iter().filter(is_orderly).map(|note| note.child).collect();
        for (record, mut children) in self.children_by_record() {
            children.pop();
            let again = children.iter().find(|child| orderly.contains(*child));
            assert_eq!(again, None, "{record:?} was repeated after an orderly end\n{self}");
        }
    }

    fn children_by_record(&self) -> BTreeMap<(String, String), Vec<i32>> {
        let mut records: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for note in self.of("record") {
            let record = (note.shard.clone(), note.words[0].clone());
            records.entry(record).or_default().push(note.child);
        }
        records
    }
}

impl Note {
    pub(crate) fn sequence(&self) -> SequenceNumber {
        self.words[0].parse().unwrap()
    }

    pub(crate) fn partition_key(&self) -> &str {
        &self.words[1]
    }

    pub(crate) fn start_position(&self) -> &str {
        &self.words[0]
    }

    /// Returns the time in milliseconds since 1970.
    pub(crate) fn time(&self) -> i64 {
        self.words[0].parse().unwrap()
    }
}

impl fmt::Display for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut records = 0;
        for note in &self.0 {
            if note.event == "record" {
                records += 1;
            } else {
                let Note { child, event, shard, words } = note;
                writeln!(f, "after {records:5} records: {child} {shard} {event} {words:?}")?;
            }
        }
        Ok(())
    }
}
