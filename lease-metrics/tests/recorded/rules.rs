//! The rules of `docs/operate/alerts.yml`, as text.

use std::collections::BTreeSet;

#[derive(Debug)]
pub(crate) struct Rules(String);

impl Rules {
    pub(crate) fn read() -> Self {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operate/alerts.yml");
        Self(std::fs::read_to_string(file).unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The names of the alerts, in order.
    pub(crate) fn alerts(&self) -> Vec<String> {
        self.0.lines().filter_map(alert_of).map(str::to_owned).collect()
    }

    /// The names of the series that the rules use.
    pub(crate) fn series(&self) -> BTreeSet<String> {
        let words = self.0.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
        words.filter(|word| word.starts_with("lease_")).map(str::to_owned).collect()
    }

    /// The rules with one change of `alert`: the comparisons are the other way round, or the alternative after `or`
    /// is missing.
    pub(crate) fn mutants(&self, alert: &str) -> Vec<Self> {
        let flipped = self.with_each_line_of(alert, |line| {
            let is_above = line.contains(" > ");
            let flipped =
                if is_above { line.replace(" > ", " < ") } else { line.replace("< ", "> ") };
            Some(flipped)
        });
        let mut is_alternative = false;
        let without_alternative = self.with_each_line_of(alert, |line| {
            let line_begins = |text| line.trim_start().starts_with(text);
            is_alternative = line_begins("or ") || is_alternative && !line_begins("for:");
            (!is_alternative).then(|| line.to_owned())
        });
        let mutants = [flipped, without_alternative].into_iter();
        mutants.filter(|mutant| mutant.0 != self.0).collect()
    }

    fn with_each_line_of(
        &self,
        alert: &str,
        mut change: impl FnMut(&str) -> Option<String>,
    ) -> Self {
        let mut is_of_alert = false;
        let changed = self.0.lines().filter_map(|line| {
            is_of_alert = alert_of(line).map_or(is_of_alert, |name| name == alert);
            let line = if is_of_alert { change(line)? } else { line.to_owned() };
            Some(line + "\n")
        });
        Self(changed.collect())
    }
}

fn alert_of(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("- alert: ")
}
