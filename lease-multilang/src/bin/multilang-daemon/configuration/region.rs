//! Reads the properties that name a region.

use super::properties::Properties;

/// With a wrong code, the daemon would retry for ever with a host that does not exist.
pub(crate) fn named(file: &mut Properties, key: &str, any_name: AnyName) -> Option<String> {
    file.parsed(key, |region| {
        let is_code = any_name == AnyName::Allowed || is_code(region);
        is_code.then(|| region.to_owned()).ok_or("must be the code of a region, such as eu-west-3")
    })
}

/// Servers that replace AWS accept any name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnyName {
    Allowed,
    Refused,
}

impl AnyName {
    pub(crate) fn with(endpoint: Option<&String>) -> Self {
        if endpoint.is_some() { Self::Allowed } else { Self::Refused }
    }
}

/// Accepts `us-east-1`, `us-gov-west-1` or `eusc-de-east-1`, for example.
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
    fn any_region_is_allowed_with_an_endpoint() {
        let mut file = Properties::parse("test".into(), &b"regionName = local"[..]).unwrap();

        assert_eq!(named(&mut file, "regionName", AnyName::Allowed).as_deref(), Some("local"));
    }
}
