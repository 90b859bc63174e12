//! Joins the findings of several servers: one line per check and result, which names its servers.

use crate::doctor::Finding;

/// The findings of one server, which `name` names.
#[derive(Debug)]
pub(super) struct OfServer {
    pub(super) name: String,
    pub(super) findings: Vec<Finding>,
}

/// Joins equal findings. Findings keep the order of the first server that has them; checks stay together.
pub(super) fn merged(servers: &[OfServer]) -> Vec<Finding> {
    let mut groups: Vec<(Finding, Vec<&str>)> = Vec::new();
    for server in servers {
        for finding in &server.findings {
            if let Some((_, names)) = groups.iter_mut().find(|(known, _)| known == finding) {
                names.push(&server.name);
                continue;
            }
            let last = groups.iter().rposition(|(known, _)| known.check == finding.check);
            let place = last.map_or(groups.len(), |last| last + 1);
            groups.insert(place, (finding.clone(), vec![&server.name]));
        }
    }
    let named = |(finding, names): (Finding, Vec<&str>)| {
        let names = if names.len() == servers.len() && names.len() > 1 {
            format!("all {} servers", names.len())
        } else {
            names.join(", ")
        };
        Finding { found: format!("{names}: {}", finding.found), ..finding }
    };
    groups.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Grade;

    #[test]
    fn equal_findings_are_joined() {
        let ok = |check| Finding::ok(check, "good");
        let bad = || Finding::bad("one", Grade::Problem, "bad", "mend");
        let server = |name: &str, findings| OfServer { name: name.to_owned(), findings };

        let found = merged(&[
            server("a", vec![ok("one"), ok("two")]),
            server("b", vec![bad(), ok("two")]),
            server("c", vec![bad(), ok("two")]),
        ]);

        let texts: Vec<_> = found.iter().map(|finding| finding.found.as_str()).collect();
        assert_eq!(texts, ["a: good", "b, c: bad", "all 3 servers: good"]);
        assert_eq!(found[1].grade, Grade::Problem);
    }
}
