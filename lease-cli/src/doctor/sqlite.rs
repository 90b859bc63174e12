//! The checks of an SQLite file.

use std::path::{Path, PathBuf};

use rustix::fs::statfs;

use super::{Finding, Grade};

/// Checks the file system of the file. `lease-sqlite` itself refuses network file systems.
pub(crate) fn examine(url: &str) -> Vec<Finding> {
    let folder = folder_of(url);
    let found = match statfs(&folder) {
        Ok(found) => found,
        Err(error) => return vec![Finding::unknown(CHECK, error)],
    };
    // The kernel's type is 32 bits wide; some architectures sign-extend it.
    let (number, shown) = (found.f_type & 0xffff_ffff, folder.display());
    if number == TMPFS || number == RAMFS {
        return vec![Finding::bad(
            CHECK,
            Grade::Warning,
            format!(
                "{shown} is in memory: a restart of the machine forgets reservations and tokens"
            ),
            "move the file to a local disk, such as /var/lib/lease",
        )];
    }
    vec![Finding::ok(CHECK, format!("{shown} is on a local file system"))]
}

fn folder_of(url: &str) -> PathBuf {
    let path = url.split_once(':').map(|(_, rest)| rest).unwrap_or_default();
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = path.split('?').next().unwrap_or_default();
    let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or_else(|| Path::new(".")).to_owned()
}

const CHECK: &str = "file system";
// See `linux/magic.h`.
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_read_from_the_url() {
        assert_eq!(folder_of("sqlite:///var/lib/leases.db"), Path::new("/var/lib"));
        assert_eq!(folder_of("sqlite:leases.db?timeout=2s"), Path::new("."));
    }
}
