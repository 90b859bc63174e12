//! The file system under SQLite.

use std::fs::File;
use std::process::Command;

use lease_test_servers::tools::missing;
use tempfile::TempDir;

use super::{examine, finds};

/// A file system that is mounted on a folder. Dropping it unmounts the file system.
struct Mounted {
    folder: TempDir,
    /// The server's end of a FUSE mount.
    server: Option<File>,
}

impl Mounted {
    /// Mounts a file system on a new folder. `None`, with a printed line, if this user may not mount.
    fn by(arguments: &[&str], server: Option<File>) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(arguments).arg(folder.path());
        if let Some(server) = &server {
            mount.stdin(server.try_clone().unwrap());
        }
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Self { folder, server });
        }
        missing("the right to mount");
        None
    }

    fn url(&self) -> String {
        format!("sqlite://{}/leases.db", self.folder.path().display())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Otherwise, umount would wait for an answer of the server.
        self.server = None;
        let unmounted = Command::new("umount").arg("-l").arg(self.folder.path()).status();
        assert!(unmounted.unwrap().success());
    }
}

#[test]
fn file_system_in_memory_is_found() {
    let Some(mounted) = Mounted::by(&["-t", "tmpfs", "tmpfs"], None) else { return };

    let (code, lines) = examine(&mounted.url());

    assert_eq!(code, 0);
    finds(&lines, "file system", "warning", &["in memory", "local disk"]);
}

/// A mount of sshfs whose server answers nothing, as after a cut of the network.
#[test]
fn network_file_system_is_found_while_its_server_hangs() {
    let Ok(server) = File::options().read(true).write(true).open("/dev/fuse") else {
        missing("/dev/fuse");
        return;
    };
    // Without -i, mount would start sshfs. The file descriptor 0 leads to the server, which is this process.
    let options = "fd=0,rootmode=40000,user_id=0,group_id=0,allow_other";
    let arguments = ["-i", "-t", "fuse.sshfs", "-o", options, "backup@host:/leases"];
    let Some(mounted) = Mounted::by(&arguments, Some(server)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(mounted.folder.path(), &link).unwrap();

    let (code, lines) = examine(&mounted.url());
    let (_, by_link) = examine(&format!("sqlite://{}/leases.db", link.display()));

    assert_eq!(code, 1);
    assert_eq!(lines.len(), 1, "the file is not opened: {lines:?}");
    let parts = ["fuse.sshfs", "backup@host:/leases", "local disk"];
    finds(&lines, "file system", "problem", &parts);
    finds(&by_link, "file system", "problem", &parts);
}
