//! The result of each program, and the totals.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use crate::Failure;
use crate::programs::Job;

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) passed: bool,
    pub(crate) output: String,
    took: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Totals {
    programs: usize,
    passed: u64,
    failed: u64,
    ignored: u64,
    failures: Vec<String>,
    skipped: Vec<String>,
    times: Vec<(Duration, String)>,
}

impl Outcome {
    /// The output goes to a file, since a server that outlives its test would keep a pipe open.
    pub(crate) fn of(job: &Job, took: impl FnOnce() -> Duration) -> Result<Self, Failure> {
        let path = log_of(job)?;
        let file = File::create(&path)?;
        let mut command = job.command();
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let status = command.status().map_err(|error| format!("{}: {error}", job.title))?;
        let output = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
        Ok(Self { passed: status.success(), output, took: took() })
    }

    pub(crate) fn line(&self, job: &Job) -> String {
        let mut results: Vec<_> = self.results().collect();
        if results.len() > 1 {
            // Doc tests print one result per crate. The totals follow at the end.
            results.retain(|line| !line.contains(" 0 passed; 0 failed;"));
        }
        let result = if results.is_empty() { self.verdict() } else { results.join("\n") };
        format!("{:7.1} s  {}\n{result}", self.took.as_secs_f64(), job.title)
    }

    fn verdict(&self) -> String {
        let verdict = if self.passed { "ok" } else { "FAILED" };
        format!("test result: {verdict}")
    }

    fn results(&self) -> impl Iterator<Item = &str> {
        self.output.lines().filter(|line| line.starts_with("test result:"))
    }
}

impl Totals {
    pub(crate) fn of(ended: &[(String, Outcome)]) -> Self {
        let mut totals = Self { programs: ended.len(), ..Self::default() };
        for (title, outcome) in ended {
            for result in outcome.results() {
                totals.passed += count(result, "passed");
                totals.failed += count(result, "failed");
                totals.ignored += count(result, "ignored");
            }
            if !outcome.passed {
                let tests = outcome.output.lines().filter(|line| line.ends_with("... FAILED"));
                totals.failures.push(format!("FAILED: {title}"));
                totals.failures.extend(tests.map(|line| format!("        {line}")));
            }
            let skipped = outcome.output.lines().filter(|line| line.starts_with("SKIPPED"));
            totals.skipped.extend(skipped.map(str::to_owned));
            totals.times.push((outcome.took, title.clone()));
        }
        totals.skipped.sort();
        totals.skipped.dedup();
        totals.times.sort_by(|one, other| other.cmp(one));
        totals
    }

    pub(crate) fn all_passed(&self) -> bool {
        self.failures.is_empty()
    }

    pub(crate) fn report(&self, took: Duration) -> String {
        let mut lines = vec![String::new()];
        let (long, short): (Vec<_>, Vec<_>) =
            self.times.iter().partition(|(took, _)| *took >= Duration::from_secs(1));
        let line = |took: &Duration, title: &str| format!("{:7.1} s  {title}", took.as_secs_f64());
        lines.extend(long.iter().map(|(took, title)| line(took, title)));
        let rest: Duration = short.iter().map(|(took, _)| *took).sum();
        lines.push(line(&rest, &format!("{} more programs, under a second each", short.len())));
        lines.push(line(&took, "all programs, side by side"));
        lines.push(String::new());
        lines.extend(self.skipped.iter().cloned());
        lines.extend(self.failures.iter().cloned());
        lines.push(format!(
            "{} passed, {} failed, {} ignored, in {} test programs",
            self.passed, self.failed, self.ignored, self.programs
        ));
        lines.join("\n")
    }
}

/// Returns the number before `word` in `test result: ok. 3 passed; 0 failed; …`.
fn count(result: &str, word: &str) -> u64 {
    let before = result.split(word).next().unwrap_or_default();
    before.split_whitespace().last().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn log_of(job: &Job) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()?;
    let folder = own.parent().ok_or("the test runner has no folder")?.join("test-logs");
    std::fs::create_dir_all(&folder)?;
    let name: String =
        job.title.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '-' }).collect();
    Ok(folder.join(format!("{}.log", name.trim_matches('-'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(passed: bool, output: &str) -> Outcome {
        Outcome { passed, output: output.to_owned(), took: Duration::from_secs(2) }
    }

    #[test]
    fn results_of_two_programs_are_added() {
        let ended = [
            ("a".to_owned(), outcome(true, "test result: ok. 3 passed; 0 failed; 1 ignored; 0 m")),
            ("b".to_owned(), outcome(true, "test result: ok. 4 passed; 0 failed; 0 ignored; 0 m")),
        ];

        let totals = Totals::of(&ended);

        assert!(totals.all_passed());
        let report = totals.report(Duration::from_secs(3));
        assert!(report.ends_with("7 passed, 0 failed, 1 ignored, in 2 test programs"), "{report}");
        assert!(report.contains("    2.0 s  a"), "{report}");
    }

    #[test]
    fn failed_tests_are_listed_in_the_report() {
        let output =
            "test one ... ok\ntest two ... FAILED\ntest result: FAILED. 1 passed; 1 failed;";
        let ended = [("a".to_owned(), outcome(false, output))];

        let totals = Totals::of(&ended);

        assert!(!totals.all_passed());
        let report = totals.report(Duration::from_secs(3));
        assert!(report.contains("FAILED: a\n        test two ... FAILED"), "{report}");
        assert!(report.contains("1 passed, 1 failed"), "{report}");
    }

    #[test]
    fn program_without_a_test_result_counts_as_failed() {
        let totals = Totals::of(&[("a".to_owned(), outcome(false, "Segmentation fault"))]);

        assert!(!totals.all_passed());
    }
}
