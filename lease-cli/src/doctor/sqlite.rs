//! The checks of an SQLite file.

use std::fs;
use std::path::{Path, PathBuf, absolute};

use percent_encoding::percent_decode_str;

use super::mounts::{Mount, Mounts, is_network};
use super::{Finding, Grade};

/// Checks the file system of the file. Does not open the file: the server of a network file system may hang. No
/// finding if the URL names no file.
pub(crate) fn examine(url: &str) -> Option<Finding> {
    let file = absolute(file_of(url)).ok()?;
    Some(match fs::read_to_string("/proc/self/mountinfo") {
        Ok(mountinfo) => {
            let mounts = Mounts::parse(&mountinfo);
            judge(&mounts.resolved(&file), &mounts)
        }
        Err(error) => Finding::unknown(CHECK, format!("/proc/self/mountinfo: {error}")),
    })
}

fn judge(file: &Path, mounts: &Mounts) -> Finding {
    let shown = file.display();
    let Some(mount) = mounts.of(file) else {
        return Finding::unknown(
            CHECK,
            format!("{shown} is on no file system of /proc/self/mountinfo"),
        );
    };
    let Mount { kind, place, source, .. } = mount;
    if is_network(kind) {
        return Finding::bad(
            CHECK,
            Grade::Problem,
            format!(
                "{shown} is on the file system {kind} of {source}, mounted at {}, which other machines may share",
                place.display()
            ),
            "move the file to a local disk, such as /var/lib/lease, or use a store on a server",
        );
    }
    if kind == "tmpfs" || kind == "ramfs" {
        return Finding::bad(
            CHECK,
            Grade::Warning,
            format!(
                "{shown} is in memory ({kind}): a restart of the machine forgets reservations and tokens"
            ),
            "move the file to a local disk, such as /var/lib/lease",
        );
    }
    Finding::ok(CHECK, format!("{shown} is on a local file system ({kind})"))
}

fn file_of(url: &str) -> PathBuf {
    let path = url.split_once(':').map(|(_, rest)| rest).unwrap_or_default();
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = path.split('?').next().unwrap_or_default();
    percent_decode_str(path).decode_utf8_lossy().into_owned().into()
}

const CHECK: &str = "file system";

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
28 27 0:40 / /home rw - nfs4 files:/home rw
29 27 0:41 / /run rw - tmpfs tmpfs rw
";

    #[test]
    fn file_is_read_from_the_url() {
        assert_eq!(file_of("sqlite:///var/lib/leases.db"), Path::new("/var/lib/leases.db"));
        assert_eq!(file_of("sqlite:leases.db?timeout=2s"), Path::new("leases.db"));
        assert_eq!(file_of("sqlite:///a%25b/c%3Fd/leases.db"), Path::new("/a%b/c?d/leases.db"));
    }

    #[test]
    fn file_systems_are_judged_by_their_type() {
        let judged = |path: &str| judge(Path::new(path), &Mounts::parse(MOUNTINFO));

        assert_eq!(judged("/var/lib/leases.db").grade, Grade::Ok);
        assert_eq!(judged("/run/leases.db").grade, Grade::Warning);
        let network = judged("/home/one/leases.db");
        assert_eq!(network.grade, Grade::Problem);
        assert!(network.found.contains("nfs4 of files:/home"), "{network:?}");
        assert_eq!(judge(Path::new("/x"), &Mounts::parse("")).grade, Grade::Unknown);
    }
}
