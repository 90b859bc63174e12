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

    /// The rules, but each comparison of `alert` is the other way round.
    pub(crate) fn with_flipped(&self, alert: &str) -> Self {
        let mut is_of_alert = false;
        let flip = |line: &str| {
            is_of_alert = alert_of(line).map_or(is_of_alert, |name| name == alert);
            let flipped = match line {
                line if !is_of_alert => line.to_owned(),
                line if line.contains(" > ") => line.replace(" > ", " < "),
                line => line.replace("< ", "> "),
            };
            flipped + "\n"
        };
        let flipped: String = self.0.lines().map(flip).collect();
        assert_ne!(flipped, self.0, "{alert} has no comparison");
        Self(flipped)
    }
}

fn alert_of(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("- alert: ")
}
