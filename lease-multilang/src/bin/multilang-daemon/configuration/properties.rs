//! A file of Java properties: keys, values and their errors.

use std::collections::{BTreeMap, BTreeSet};
use std::env::current_dir;
use std::fmt::Display;
use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use java_properties::PropertiesIter;
use strsim::damerau_levenshtein;

use crate::failure::Failure;

/// Reading a key removes the key. All errors are reported together.
#[derive(Debug, Default)]
pub(crate) struct Properties {
    name: String,
    values: BTreeMap<String, String>,
    problems: Vec<String>,
    /// All keys that the daemon reads, refuses or ignores.
    known: BTreeSet<String>,
    without_effect: BTreeSet<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ignored {
    /// Keys of Amazon's daemon. The daemon loses no record if it ignores these keys.
    pub(crate) without_effect: Vec<String>,
    pub(crate) unknown: Vec<String>,
}

impl Properties {
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let name = file.display().to_string();
        let unread = |reason: String| Failure::usage(format!("properties file {name}: {reason}"));
        if file.is_dir() {
            return Err(unread("it is a folder: give the file in it".to_owned()));
        }
        let opened = File::open(file).map_err(|error| match (error.kind(), current_dir()) {
            (ErrorKind::NotFound, Ok(here)) if file.is_relative() => {
                unread(format!("no such file below {}: give it with its path", here.display()))
            }
            (ErrorKind::NotFound, _) => unread("no such file: check its name".to_owned()),
            (ErrorKind::PermissionDenied, _) => {
                unread("this user may not read the file: change its owner or mode".to_owned())
            }
            _ => unread(error.to_string()),
        })?;
        Self::parse(name, BufReader::new(opened))
    }

    pub(crate) fn parse(name: String, text: impl std::io::Read) -> Result<Self, Failure> {
        let mut values = BTreeMap::new();
        let take = |key: String, value: String| {
            values.insert(canonical(&key), value.trim().to_owned());
        };
        PropertiesIter::new(text)
            .read_into(take)
            .map_err(|error| Failure::usage(format!("properties file {name}: {error}")))?;
        Ok(Self { name, values, ..Self::default() })
    }

    /// Returns `None` if the text is missing or empty.
    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        self.known.insert(key.to_owned());
        self.values.remove(key).filter(|text| !text.is_empty())
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(|text| !text.is_empty())
    }

    pub(crate) fn is_empty(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(String::is_empty)
    }

    pub(crate) fn required(&mut self, key: &str, what: &str) -> String {
        self.text(key).unwrap_or_else(|| {
            self.record_error(format!("{key} is missing: {what}"));
            String::new()
        })
    }

    pub(crate) fn parsed<T, E: Display>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(key)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(rule) => {
                self.record_error(format!("{key} = {text}: {rule}"));
                None
            }
        }
    }

    pub(crate) fn number(&mut self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        self.parsed(key, |text| {
            let number = text.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| match *range.end() {
                u64::MAX => format!("must be a whole number, {} or more", range.start()),
                end => format!("must be a whole number from {} to {end}", range.start()),
            })
        })
    }

    pub(crate) fn millis(&mut self, key: &str, least: u64) -> Option<Duration> {
        self.number(key, least..=MAX_MILLIS).map(Duration::from_millis)
    }

    /// Accepts the words that Java's converter accepts.
    pub(crate) fn flag(&mut self, key: &str) -> Option<bool> {
        self.choice(
            key,
            &[
                ("true", true),
                ("false", false),
                ("yes", true),
                ("no", false),
                ("y", true),
                ("n", false),
                ("on", true),
                ("off", false),
                ("1", true),
                ("0", false),
            ],
        )
    }

    /// The text must be one of `words`, in upper or lower case. Returns the value of the word.
    pub(crate) fn choice<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        self.parsed(key, |text| {
            let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
            found.map(|(_, value)| *value).ok_or_else(|| {
                let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
                format!("must be one of {}", words.join(", "))
            })
        })
    }

    /// Also removes the keys nested below `keys`.
    pub(crate) fn have_no_effect(&mut self, keys: &[&str]) {
        for key in keys {
            self.known.insert((*key).to_owned());
            for found in self.at_or_below(key) {
                self.values.remove(&found);
                self.without_effect.insert(found);
            }
        }
    }

    /// Also refuses the keys nested below `keys`. The error says what to write instead.
    pub(crate) fn refuse(&mut self, keys: &[(&str, &str)]) {
        for (key, remedy) in keys {
            self.known.insert((*key).to_owned());
            for found in self.at_or_below(key) {
                self.values.remove(&found);
                self.record_error(format!("{found} does not exist here: {remedy}"));
            }
        }
    }

    fn at_or_below(&self, key: &str) -> Vec<String> {
        let is_below = |found: &&String| {
            found.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.values.keys().filter(is_below).cloned().collect()
    }

    pub(crate) fn record_error(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// A misspelled key is an error, because the daemon would otherwise run with a default value.
    pub(crate) fn end(mut self) -> Result<Ignored, Failure> {
        for key in self.values.keys() {
            if let Some(known) = self.nearest_known(key) {
                self.problems.push(format!("{key} is unknown: did you mean {known}?"));
            } else if key.starts_with(CREDENTIALS_KEY) {
                let problem = format!("{key} is unknown: write AwsCredentialsProvider alone");
                self.problems.push(problem);
            }
        }
        if !self.problems.is_empty() {
            let problems = self.problems.join("\n  ");
            let name = self.name;
            return Err(Failure::usage(format!("{name} is not valid:\n  {problems}")));
        }
        Ok(Ignored {
            without_effect: self.without_effect.into_iter().collect(),
            unknown: self.values.into_keys().collect(),
        })
    }

    fn nearest_known(&self, key: &str) -> Option<&str> {
        let key = key.to_ascii_lowercase();
        let distance = |known: &str| damerau_levenshtein(&key, &known.to_ascii_lowercase());
        let near = self.known.iter().map(|known| (distance(known), known.as_str()));
        let near = near.filter(|(letters, _)| *letters <= MAX_WRONG_LETTERS);
        near.min().map(|(_, known)| known)
    }
}

/// As in Java's beans, the first letter may differ in case. In the key of the credentials provider, any
/// letter may differ.
fn canonical(key: &str) -> String {
    let key = key.trim();
    if key.to_ascii_lowercase().starts_with(CREDENTIALS) {
        return format!("{CREDENTIALS_KEY}{}", key.get(CREDENTIALS.len()..).unwrap_or_default());
    }
    let small = |part: &str| {
        let mut letters = part.chars();
        letters
            .next()
            .map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
    };
    let key = key.split('.').map(small).collect::<Vec<_>>().join(".");
    // As in Java's daemon, the keys of the bean `pollingConfig` may omit the bean's name.
    key.strip_prefix("pollingConfig.").map_or_else(|| key.clone(), str::to_owned)
}

const CREDENTIALS: &str = "awscredentialsprovider";

const CREDENTIALS_KEY: &str = "awsCredentialsProvider";

/// The case of the letters does not matter.
const MAX_WRONG_LETTERS: usize = 2;

/// The largest accepted time: three weeks.
const MAX_MILLIS: u64 = 1_814_400_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Properties {
        Properties::parse("test.properties".into(), text.as_bytes()).unwrap()
    }

    #[test]
    fn file_is_parsed_by_the_rules_of_java() {
        let mut properties = parse(
            "# a comment\n! another\nplain=1\ncolon: 2\nspaces   3\nlong = one\\\n    two\n\
             escaped = caf\\u00e9\\t!\nSpaced = x  \r\nempty =\n",
        );

        let expected = [
            ("plain", Some("1")),
            ("colon", Some("2")),
            ("spaces", Some("3")),
            ("long", Some("onetwo")),
            ("escaped", Some("café\t!")),
            ("spaced", Some("x")),
            ("empty", None),
        ];
        for (key, value) in expected {
            assert_eq!(properties.text(key).as_deref(), value, "{key}");
        }
    }

    #[test]
    fn keys_match_in_upper_and_lower_case_as_in_java() {
        let mut properties = parse(
            "ApplicationName = a\nFanoutConfig.ConsumerArn = b\nAWSCredentialsProvider = c\n\
             AwsCredentialsProviderDynamoDB = d\nretrievalmode = e",
        );

        assert_eq!(properties.text("applicationName").as_deref(), Some("a"));
        assert_eq!(properties.text("fanoutConfig.consumerArn").as_deref(), Some("b"));
        assert_eq!(properties.text("awsCredentialsProvider").as_deref(), Some("c"));
        assert_eq!(properties.text("awsCredentialsProviderDynamoDB").as_deref(), Some("d"));
        assert_eq!(properties.text("retrievalMode"), None, "only the first letter may be capital");
    }

    #[test]
    fn repeated_key_has_its_last_value() {
        assert_eq!(parse("a = 1\nA = 2").text("a").as_deref(), Some("2"));
    }

    #[test]
    fn all_errors_are_reported_with_the_allowed_values() {
        let mut properties = parse("number = 0\nchoice = maybe\nflag = 2\nlong = 99999999999999");

        properties.number("number", 1..=10);
        properties.choice("choice", &[("YES", 1), ("NO", 2)]);
        properties.flag("flag");
        properties.millis("long", 0);
        properties.required("command", "what to run");

        let errors = properties.end().unwrap_err().to_string();
        let expected = "test.properties is not valid:\n  \
            number = 0: must be a whole number from 1 to 10\n  \
            choice = maybe: must be one of YES, NO\n  \
            flag = 2: must be one of true, false, yes, no, y, n, on, off, 1, 0\n  \
            long = 99999999999999: must be a whole number from 0 to 1814400000\n  \
            command is missing: what to run";
        assert_eq!(errors, expected);
    }

    #[test]
    fn ignored_and_unknown_keys_are_listed_separately() {
        let mut properties =
            parse("zeta = 1\nalpha = 2\nmetricsLevel = NONE\nclient.region = a\nused = 3");
        properties.text("used");
        properties.have_no_effect(&["metricsLevel", "billingMode", "client"]);

        let ignored = properties.end().unwrap();

        assert_eq!(ignored.without_effect, ["client.region", "metricsLevel"]);
        assert_eq!(ignored.unknown, ["alpha", "zeta"]);
    }

    #[test]
    fn key_within_two_letters_of_a_known_one_is_refused() {
        for (key, is_refused) in [
            ("initialPositionInStreem", true),
            ("initialPostionInStream", true),
            ("initialPositoinInStraem", true),
            ("initialpositioninstream", true),
            ("metricsLevl", true),
            ("initialPosition", false),
            ("replicas", false),
        ] {
            let mut properties = parse(&format!("{key} = x"));
            properties.text("initialPositionInStream");
            properties.have_no_effect(&["metricsLevel"]);

            let outcome = properties.end();

            assert_eq!(outcome.is_err(), is_refused, "{key}: {outcome:?}");
            if let Err(refused) = outcome {
                let refused = refused.to_string();
                assert!(refused.contains(&format!("{key} is unknown: did you mean ")), "{refused}");
            }
        }
    }

    #[test]
    fn refused_key_includes_the_keys_nested_below_it() {
        let mut properties = parse("client = a\nclient.region = b\nclients = c");
        properties.text("clients");
        properties.refuse(&[("client", "write regionName")]);

        let refused = properties.end().unwrap_err().to_string();

        assert_eq!(
            refused,
            "test.properties is not valid:\n  client does not exist here: write regionName\n  \
             client.region does not exist here: write regionName"
        );
    }

    #[test]
    fn key_of_the_polling_bean_needs_no_prefix() {
        assert_eq!(parse("pollingConfig.maxRecords = 5").text("maxRecords").as_deref(), Some("5"));
    }
}
