//! Finds the file system of a path in the text of `/proc/self/mountinfo`. See `proc_pid_mountinfo(5)`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    id: u64,
    parent: u64,
    /// Where it is mounted.
    pub(super) place: PathBuf,
    /// The type, such as `ext4`, `nfs4` or `fuse.sshfs`.
    pub(super) kind: String,
    /// The device, or the server and its folder.
    pub(super) source: String,
}

/// All mounts that this process sees.
#[derive(Debug)]
pub(super) struct Mounts(Vec<Mount>);

impl Mounts {
    pub(super) fn parse(mountinfo: &str) -> Self {
        Self(mountinfo.lines().filter_map(mount).collect())
    }

    /// Returns the mount that has the file at the absolute `path`, which has no links.
    pub(super) fn of(&self, path: &Path) -> Option<&Mount> {
        let ids: BTreeSet<u64> = self.0.iter().map(|mount| mount.id).collect();
        let mut found: Option<&Mount> = None;
        // Walks down the tree of mounts, as the kernel does. So a mount that another mount covers is not found.
        for _level in 0..self.0.len() {
            let is_next = |mount: &&Mount| match found {
                Some(above) => mount.parent == above.id && mount.id != above.id,
                // The root of a chroot or a container has a parent that is not listed.
                None => mount.parent == mount.id || !ids.contains(&mount.parent),
            };
            let next = self.0.iter().filter(is_next).filter(|mount| path.starts_with(&mount.place));
            // The walk along the path comes to the shortest place first.
            match next.min_by_key(|mount| mount.place.as_os_str().len()) {
                Some(next) => found = Some(next),
                None => break,
            }
        }
        found
    }

    /// Follows the links of the absolute `path`. Touches nothing on a network file system, whose server may hang.
    pub(super) fn resolved(&self, path: &Path) -> PathBuf {
        let parts = |path: &Path| -> Vec<PathBuf> {
            path.components().rev().map(|part| Path::new(part.as_os_str()).to_owned()).collect()
        };
        let (mut found, mut rest, mut links) = (PathBuf::new(), parts(path), 0);
        while let Some(part) = rest.pop() {
            if part == Path::new("..") {
                found.pop();
                continue;
            }
            // The root replaces what was found before.
            let next = found.join(part);
            let is_remote = self.of(&next).is_some_and(|mount| is_network(&mount.kind));
            if is_remote {
                found = next;
                continue;
            }
            match fs::read_link(&next) {
                Ok(target) if links < MOST_LINKS => {
                    links += 1;
                    rest.extend(parts(&target));
                }
                _ => found = next,
            }
        }
        found
    }
}

/// Whether other machines may share a file system of this type. FUSE is included, as in `lease-sqlite`: network file
/// systems such as sshfs are of this type, and so are some local ones.
pub(super) fn is_network(kind: &str) -> bool {
    let family = kind.split('.').next().unwrap_or_default();
    NETWORK.contains(&family)
}

/// Parses a line: `ID PARENT MAJOR:MINOR ROOT PLACE OPTIONS [FIELD…] - TYPE SOURCE OPTIONS`.
fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ');
    let (id, parent) = (before.next()?.parse().ok()?, before.next()?.parse().ok()?);
    let place = PathBuf::from(unescaped(before.nth(2)?));
    let mut after = after.split(' ');
    let (kind, source) = (after.next()?.to_owned(), after.next().unwrap_or_default());
    let source = unescaped(source).to_string_lossy().into_owned();
    Some(Mount { id, parent, place, kind, source })
}

/// Replaces `\040`, the octal code of a blank, and other such codes.
fn unescaped(text: &str) -> OsString {
    let mut parts = text.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(part.bytes().skip(3));
            }
            None => bytes.extend([b"\\", part.as_bytes()].concat()),
        }
    }
    OsString::from_vec(bytes)
}

/// The kernel follows as many: see `path_resolution(7)`.
const MOST_LINKS: usize = 40;
const NETWORK: [&str; 22] = [
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "fuse",
    "fuseblk",
    "gfs2",
    "glusterfs",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "ocfs2",
    "pvfs2",
    "smb3",
    "smbfs",
    "vboxsf",
    "virtiofs",
    "vmhgfs",
];

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684084k
24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw,size=12334460k
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 25 0:27 / /dev/shm rw,relatime shared:7 master:2 - ramfs second rw
40 27 0:50 / /home rw - nfs4 files.example.com:/export/home rw,vers=4.2,addr=10.0.0.7
41 40 0:51 / /home/one/local\\040disk rw - xfs /dev/vdb rw
42 27 0:52 / /srv/data rw - ext4 /dev/vdc rw
43 27 0:53 / /srv rw - fuse.sshfs user@host:/srv rw
44 27 0:54 / /mnt/win rw - cifs //server/share rw
45 27 0:55 / /mnt/vm rw - 9p host rw,trans=virtio
a line that is no mount
46 x 0:55 / /mnt/wrong rw - ext4 host rw
";

    fn kind(path: &str) -> String {
        Mounts::parse(MOUNTINFO).of(Path::new(path)).unwrap().kind.clone()
    }

    #[test]
    fn innermost_mount_has_the_path() {
        assert_eq!(kind("/var/lib/lease"), "ext4");
        assert_eq!(kind("/home/one"), "nfs4");
        assert_eq!(kind("/home/one/local disk/leases"), "xfs");
        assert_eq!(kind("/home/one/local"), "nfs4");
        assert_eq!(kind("/homes"), "ext4");
        assert_eq!(kind("/mnt/win"), "cifs");
        assert_eq!(kind("/mnt/vm/x"), "9p");
    }

    #[test]
    fn later_mount_covers_an_earlier_one() {
        assert_eq!(kind("/dev/shm/x"), "ramfs");
        // /srv/data was mounted first, and is below /srv now.
        assert_eq!(kind("/srv/data"), "fuse.sshfs");
    }

    #[test]
    fn root_of_a_container_has_an_unlisted_parent() {
        let text =
            "600 500 0:9 / / rw - overlay overlay rw\n601 600 0:8 / /data rw - nfs h:/x rw\n";

        let mounts = Mounts::parse(text);

        assert_eq!(mounts.of(Path::new("/data/x")).unwrap().source, "h:/x");
        assert_eq!(mounts.of(Path::new("/x")).unwrap().kind, "overlay");
        assert_eq!(Mounts::parse("").of(Path::new("/x")), None);
    }

    #[test]
    fn links_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        fs::create_dir_all(folder.join("real/deep")).unwrap();
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, folder.join(name)).unwrap();
        };
        link("real/deep", "relative");
        link("/", "absolute");
        link("loop", "loop");
        let mounts = Mounts::parse("");
        let resolved = |path: &str| mounts.resolved(&folder.join(path));

        assert_eq!(resolved("relative/x"), folder.join("real/deep/x"));
        assert_eq!(resolved("relative/../x"), folder.join("real/x"));
        assert_eq!(resolved("absolute/none/x"), Path::new("/none/x"));
        assert_eq!(resolved("missing/x"), folder.join("missing/x"));
        assert!(resolved("loop/x").ends_with("loop/x"));
    }

    #[test]
    fn network_file_systems_are_known_by_type() {
        for network in
            ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "virtiofs", "fuse", "fuse.sshfs"]
        {
            assert!(is_network(network), "{network}");
        }
        for local in ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "nfsd", "fusectl"] {
            assert!(!is_network(local), "{local}");
        }
    }

    #[test]
    fn octal_codes_are_replaced() {
        assert_eq!(unescaped(r"a\040b\134c"), r"a b\c");
        assert_eq!(unescaped(r"\9é"), r"\9é");
        assert_eq!(unescaped(r"end\"), r"end\");
    }
}
