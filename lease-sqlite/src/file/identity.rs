//! Notices that the file was removed or replaced while processes use it.
//!
//! Otherwise two processes could grant a key in two files. Two rules prevent this fault:
//!
//! - Before and after each request, a store compares the file at its path with the file that it has opened.
//! - While a store is open, it holds a shared lock on one byte of the *folder*. The byte depends on the
//!   file's name and inode. A process that opens a new file of that name finds the lock for the old inode,
//!   and refuses the new file. The kernel releases the lock when the process ends.
//!
//! Both rules also hold for SQLite's write-ahead log and its shared memory. The locks are not on the files,
//! because closing a descriptor of a file would release SQLite's locks in this process.

use std::fs::Metadata;
use std::io::ErrorKind::NotFound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::error::Fault;
use crate::file::identity::presence::Folder;
use crate::file::settings::Settings;

#[derive(Debug)]
pub(crate) struct Identity {
    files: Vec<OpenFile>,
    /// The open folder, which holds the locks.
    _folder: Option<Folder>,
}

/// The device and inode are those of the file that was opened.
#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Identity {
    /// Refuses the files if a process still uses earlier files of these names.
    pub(crate) fn of(path: &Path, settings: &Settings) -> Result<Self, Fault> {
        if settings.statements.identity.is_empty() {
            return Ok(Self { files: Vec::new(), _folder: None });
        }
        retried(settings, || Self::try_of(path))
    }

    /// Runs before SQLite touches the remaining files.
    pub(crate) fn refuse_former(path: &Path, settings: &Settings) -> Result<(), Fault> {
        if settings.statements.identity.is_empty() {
            return Ok(());
        }
        retried(settings, || {
            let folder = Folder::of(path)?;
            NAMES.iter().try_for_each(|suffix| {
                let path = with_suffix(path, suffix);
                let inode = std::fs::metadata(&path).ok().map(|found| found.ino());
                folder.refuse_others(&path, inode)
            })
        })
    }

    fn try_of(path: &Path) -> Result<Self, Fault> {
        let files = NAMES.map(|suffix| OpenFile::of(path, suffix));
        let files = files.into_iter().collect::<Result<Vec<_>, _>>()?;
        let folder = Folder::of(path)?;
        for file in &files {
            folder.lock(file)?;
        }
        // If two processes register at the same time, at least one of them finds the other.
        for file in &files {
            folder.refuse_others(&file.path, Some(file.inode))?;
        }
        let identity = Self { files, _folder: Some(folder) };
        identity.check()?;
        Ok(identity)
    }

    pub(crate) fn check(&self) -> Result<(), Fault> {
        self.files.iter().try_for_each(OpenFile::check)
    }
}

impl OpenFile {
    fn of(path: &Path, suffix: &str) -> Result<Self, Fault> {
        let path = with_suffix(path, suffix);
        let found = std::fs::metadata(&path).map_err(|error| Fault::from_io(&path, &error))?;
        refuse_links(&path, &found)?;
        Ok(Self { path, device: found.dev(), inode: found.ino() })
    }

    fn check(&self) -> Result<(), Fault> {
        let shown = self.path.display();
        match std::fs::metadata(&self.path) {
            Ok(found) if found.dev() == self.device && found.ino() == self.inode => Ok(()),
            Ok(_other) => Err(Fault::misconfigured(format!(
                "{shown} was replaced while this process uses it: restart all processes that use the file"
            ))),
            Err(error) if error.kind() == NotFound => Err(Fault::misconfigured(format!(
                "{shown} was removed while this process uses it: restart all processes that use the file"
            ))),
            Err(error) => Err(Fault::from_io(&self.path, &error)),
        }
    }
}

/// SQLite would keep a write-ahead log for each name of a file with hard links.
fn refuse_links(path: &Path, found: &Metadata) -> Result<(), Fault> {
    if found.nlink() <= 1 {
        return Ok(());
    }
    Err(Fault::misconfigured(format!(
        "{} has {} hard links, and SQLite would lose data: keep one of the names",
        path.display(),
        found.nlink()
    )))
}

/// A process that closes the file removes the log first, and releases its lock a moment later.
fn retried<T>(settings: &Settings, register: impl Fn() -> Result<T, Fault>) -> Result<T, Fault> {
    let machine = &settings.machine;
    let start = machine.boot_time();
    loop {
        match register() {
            Err(_) if machine.boot_time().saturating_sub(start) < settings.timeout => sleep(RETRY),
            registered => return registered,
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

const NAMES: [&str; 3] = ["", "-wal", "-shm"];
const RETRY: Duration = Duration::from_millis(5);

#[cfg(any(target_os = "linux", target_os = "android"))]
mod presence {
    use std::fs::File;
    use std::hash::Hasher;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    use nix::fcntl::{FcntlArg, fcntl};
    use siphasher::sip::SipHasher13;

    use super::OpenFile;
    use crate::error::Fault;

    /// Each inode has one byte.
    const INODES: i64 = 1 << 40;
    /// All positions of all names fit into 62 bits.
    const NAMES: u64 = 1 << 22;

    #[derive(Debug)]
    pub(super) struct Folder {
        folder: File,
        path: PathBuf,
    }

    impl Folder {
        pub(super) fn of(path: &Path) -> Result<Self, Fault> {
            let path = path.parent().unwrap_or(path);
            let folder = File::open(path).map_err(|error| Fault::from_io(path, &error))?;
            Ok(Self { folder, path: path.to_owned() })
        }

        pub(super) fn lock(&self, file: &OpenFile) -> Result<(), Fault> {
            let position = first_position(&file.path) + position_of(file.inode);
            let lock = range(libc::F_RDLCK, position, 1);
            fcntl(&self.folder, FcntlArg::F_OFD_SETLK(&lock)).map_err(|error| self.fault(error))?;
            Ok(())
        }

        /// Refuses the file if a process uses another inode than `inode` under this name.
        pub(super) fn refuse_others(&self, path: &Path, inode: Option<u64>) -> Result<(), Fault> {
            let first = first_position(path);
            let ranges = match inode.map(position_of) {
                Some(own) => [(first, own), (first + own + 1, INODES - own - 1)],
                None => [(first, INODES), (first, 0)],
            };
            for (start, length) in ranges.into_iter().filter(|(_, length)| *length > 0) {
                let mut found = range(libc::F_WRLCK, start, length);
                let asked = fcntl(&self.folder, FcntlArg::F_OFD_GETLK(&mut found));
                asked.map_err(|error| self.fault(error))?;
                if i32::from(found.l_type) != libc::F_UNLCK {
                    return Err(Fault::misconfigured(format!(
                        "{} was removed or replaced, but a process still uses the earlier file and may hold leases in \
                         it: stop all processes that use the file, then start them again",
                        path.display()
                    )));
                }
            }
            Ok(())
        }

        fn fault(&self, error: nix::Error) -> Fault {
            Fault::misconfigured(format!(
                "{}: the folder cannot be locked ({error}): move the file to a local disk",
                self.path.display()
            ))
        }
    }

    fn first_position(path: &Path) -> i64 {
        let mut hasher = SipHasher13::new();
        hasher.write(path.file_name().unwrap_or_default().as_bytes());
        i64::try_from(hasher.finish() % NAMES).unwrap_or(0) * INODES
    }

    fn position_of(inode: u64) -> i64 {
        i64::try_from(inode % INODES.unsigned_abs()).unwrap_or(0)
    }

    fn range(kind: i32, start: i64, length: i64) -> libc::flock {
        libc::flock {
            l_type: i16::try_from(kind).unwrap_or(0),
            l_whence: 0, // SEEK_SET
            l_start: start,
            l_len: length,
            l_pid: 0,
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod presence {
    use std::path::Path;

    use super::OpenFile;
    use crate::error::Fault;

    #[derive(Debug)]
    pub(super) struct Folder;

    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as on Linux")]
    impl Folder {
        pub(super) fn of(_path: &Path) -> Result<Self, Fault> {
            Ok(Self)
        }

        pub(super) fn lock(&self, _file: &OpenFile) -> Result<(), Fault> {
            Ok(())
        }

        pub(super) fn refuse_others(&self, _path: &Path, _inode: Option<u64>) -> Result<(), Fault> {
            Ok(())
        }
    }
}
