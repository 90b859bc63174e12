//! The codes of regions.

use crate::properties::Properties;

/// The region that `key` names. Unless `any_name` is allowed, it has the form of AWS's codes: a wrong
/// one would be a host that does not exist, which is asked again and again.
pub(crate) fn named(file: &mut Properties, key: &str, any_name: AnyName) -> Option<String> {
    file.parsed(key, |region| {
        let is_code = any_name == AnyName::Allowed || is_code(region);
        is_code.then(|| region.to_owned()).ok_or("it is the code of a region, such as eu-west-3")
    })
}

/// Whether a region may have any name: a server that stands in for AWS does not mind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnyName {
    Allowed,
    Refused,
}

impl AnyName {
    /// Where an endpoint is given.
    pub(crate) fn with(endpoint: Option<&String>) -> Self {
        if endpoint.is_some() { Self::Allowed } else { Self::Refused }
    }
}

/// Such as `us-east-1`, `us-gov-west-1`, `eusc-de-east-1`.
pub(crate) fn is_code(region: &str) -> bool {
    let parts: Vec<_> = region.split('-').collect();
    let [words @ .., number] = &*parts else { return false };
    let is_word =
        |word: &&str| word.len() >= 2 && word.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    words.len() >= 2 && words.iter().all(is_word) && is_number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_code_has_two_words_and_a_number() {
        for code in
            ["us-east-1", "us-gov-west-1", "us-isob-east-1", "eusc-de-east-1", "ap-southeast-12"]
        {
            assert!(is_code(code), "{code}");
        }
        for other in
            ["Paris", "EU-WEST-3", "eu-west-3a", "eu_west_3", "eu-3", "eu-west-", "local", ""]
        {
            assert!(!is_code(other), "{other}");
        }
    }

    #[test]
    fn any_region_is_allowed_where_the_endpoint_is_given() {
        let mut file = Properties::parse("test".into(), &b"regionName = local"[..]).unwrap();

        assert_eq!(named(&mut file, "regionName", AnyName::Allowed).as_deref(), Some("local"));
    }
}
