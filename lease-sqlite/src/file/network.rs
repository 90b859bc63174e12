//! Refuses network file systems, whose locks do not exclude other machines reliably. SQLite's write-ahead log
//! also needs shared memory.

use std::path::Path;

use crate::error::Fault;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn refuse_network(path: &Path) -> Result<(), Fault> {
    let folder = path.parent().unwrap_or(path);
    let found = rustix::fs::statfs(folder)
        .map_err(|error| Fault::from_io(folder, &std::io::Error::from(error)))?;
    // The kernel's type is 32 bits wide. Some architectures sign-extend it.
    let Some(name) = network_name(found.f_type & 0xffff_ffff) else { return Ok(()) };
    Err(Fault::misconfigured(format!(
        "{} is on the file system {name}, which other machines may share: move the file to a local disk, or use a \
         store on a server",
        path.display()
    )))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn refuse_network(_path: &Path) -> Result<(), Fault> {
    Ok(())
}

/// The numbers are from `linux/magic.h` and `statfs(2)`.
fn network_name(number: impl TryInto<u32>) -> Option<&'static str> {
    Some(match number.try_into().ok()? {
        0x6969 => "NFS",
        0x517b => "SMB",
        0xff53_4d42 => "CIFS",
        0xfe53_4d42 => "SMB2",
        0x0102_1997 => "9P",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x00c3_6400 => "Ceph",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x7863_6f00 | 0x786f_4256 => "a shared folder of VirtualBox",
        0xbacb_acbc => "a shared folder of VMware",
        // sshfs, GlusterFS, virtiofs and S3 mounts are of this type, and so are some local file systems.
        0x6573_5546 => "FUSE",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_number() {
        assert_eq!(network_name(0x6969_u32), Some("NFS"));
        assert_eq!(network_name(0xff53_4d42_u32), Some("CIFS"));
        assert_eq!(network_name(0x6573_5546_i64), Some("FUSE"));
        // ext4, XFS, btrfs, tmpfs and overlayfs.
        for local in [0xef53_u32, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(network_name(local), None, "{local:x}");
        }
    }
}
