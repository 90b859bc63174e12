//! Judges the name of a region.

use strsim::damerau_levenshtein;

use crate::doctor::{Finding, Grade};

/// The finding of a region that has answered. Servers that replace AWS accept any name.
pub(super) fn judge(region: &str, place: String) -> Finding {
    if is_code(region) {
        return Finding::ok(CHECK, place);
    }
    let found = format!("{place}: this is not the name of a region of AWS");
    Finding::bad(CHECK, Grade::Warning, found, remedy(region))
}

/// The finding of a region that no request can name.
pub(super) fn garbled(region: &str, place: &str) -> Finding {
    let found = format!("{place}: this is not the name of a region");
    Finding::bad(CHECK, Grade::Problem, found, remedy(region))
}

/// The finding of a region whose endpoint of AWS has not answered.
pub(super) fn unreachable(region: &str, place: &str) -> Finding {
    let found = if KNOWN.contains(&region) {
        format!("{place} does not answer: is this machine connected to AWS?")
    } else {
        format!("{place} does not answer, and is not a region that this program knows")
    };
    Finding::bad(CHECK, Grade::Problem, found, remedy(region))
}

fn remedy(region: &str) -> String {
    let choose = "choose a region by ?region=REGION in the URL, or by AWS_REGION";
    if KNOWN.contains(&region) {
        return format!("check the network and its proxies, or {choose}");
    }
    let written = region.to_ascii_lowercase().replace(['_', ' '], "-");
    let nearest = KNOWN.iter().min_by_key(|known| damerau_levenshtein(known, &written));
    match nearest.filter(|known| damerau_levenshtein(known, &written) <= MISTAKES) {
        Some(nearest) => format!("{choose}: did you mean {nearest}?"),
        None => format!("{choose}, such as us-east-1"),
    }
}

/// Whether `region` has the form of `us-east-1`, `us-gov-west-1` or `eusc-de-east-1`.
fn is_code(region: &str) -> bool {
    let parts: Vec<&str> = region.split('-').collect();
    let [words @ .., number] = parts.as_slice() else { return false };
    let is_word =
        |word: &&str| word.len() >= 2 && word.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    words.len() >= 2 && words.iter().all(is_word) && is_number
}

const CHECK: &str = "region";
/// With more mistakes, a suggestion would be a guess.
const MISTAKES: usize = 3;

/// For suggestions. A region that is not listed works, too.
const KNOWN: [&str; 37] = [
    "af-south-1",
    "ap-east-1",
    "ap-east-2",
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-northeast-3",
    "ap-south-1",
    "ap-south-2",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-southeast-3",
    "ap-southeast-4",
    "ap-southeast-5",
    "ap-southeast-7",
    "ca-central-1",
    "ca-west-1",
    "cn-north-1",
    "cn-northwest-1",
    "eu-central-1",
    "eu-central-2",
    "eu-north-1",
    "eu-south-1",
    "eu-south-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "il-central-1",
    "me-central-1",
    "me-south-1",
    "mx-central-1",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-gov-east-1",
    "us-gov-west-1",
    "us-west-1",
    "us-west-2",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_region_gets_a_suggestion() {
        for (written, meant) in [
            ("eu-cental-1", "eu-central-1"),
            ("EU_WEST_1", "eu-west-1"),
            ("us-eats-1", "us-east-1"),
        ] {
            let found = unreachable(written, "region");
            assert_eq!(found.grade, Grade::Problem);
            assert!(found.remedy.unwrap().contains(meant), "{written}");
        }
        assert!(unreachable("moon", "region").remedy.unwrap().contains("such as us-east-1"));
    }

    #[test]
    fn region_that_answers_needs_the_form_of_a_code() {
        for code in ["us-east-1", "us-gov-west-1", "eusc-de-east-1", "eu-new-9"] {
            assert_eq!(judge(code, String::new()).grade, Grade::Ok, "{code}");
        }
        for other in ["Paris", "EU-WEST-3", "eu-west-3a", "eu-3", ""] {
            assert_eq!(judge(other, String::new()).grade, Grade::Warning, "{other}");
        }
    }

    #[test]
    fn known_region_that_does_not_answer_is_a_matter_of_the_network() {
        assert!(unreachable("eu-west-1", "region").remedy.unwrap().contains("network"));
    }
}
