//! Selects and opens the store, and makes its locker.

use std::env;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use lease_core::{LeaseOptions, Locker};
use lease_store::AnyStore;

use crate::exit::{Exit, Failure};
use crate::started::named_with_start;

/// Opens the store at `url`, or the SQLite file of this user.
pub(crate) async fn open(url: Option<&str>) -> Result<AnyStore, Failure> {
    match url {
        Some(url) => Ok(lease_store::connect(url).await?),
        None => Ok(lease_store::connect(&default_url()?).await?),
    }
}

/// Returns the URL of the SQLite file of this user, and creates its folder.
pub(crate) fn default_url() -> Result<String, Failure> {
    let folder = default_folder()?;
    // Only this user: a process that can write the file can end every lease.
    let created = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    created.map_err(|error| {
        let text = format!("{} cannot be created: {error}: set LEASE_STORE", folder.display());
        Failure::new(Exit::CONFIGURATION, text)
    })?;
    url_of(&folder.join("leases.db"))
}

fn default_folder() -> Result<PathBuf, Failure> {
    if rustix::process::geteuid().is_root() {
        // All processes of root share one file, whatever their environment is.
        return Ok("/var/lib/lease".into());
    }
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(state) = absolute("XDG_STATE_HOME") {
        return Ok(state.join("lease"));
    }
    let home = absolute("HOME").ok_or_else(|| {
        Failure::new(Exit::CONFIGURATION, "neither --store nor LEASE_STORE nor HOME is set")
    })?;
    Ok(home.join(".local/state/lease"))
}

fn url_of(file: &Path) -> Result<String, Failure> {
    let Some(path) = file.to_str() else {
        let text = format!("{} is not UTF-8: set LEASE_STORE", file.display());
        return Err(Failure::new(Exit::CONFIGURATION, text));
    };
    let encoded = path.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    Ok(format!("sqlite://{encoded}"))
}

/// Makes a locker whose lessee names the machine, the process, and when the process started.
pub(crate) fn locker(store: AnyStore, options: LeaseOptions) -> Result<Locker, Failure> {
    let locker = Locker::new(store).with_options(options);
    let lessee = named_with_start(locker.lessee())?;
    Ok(locker.with_lessee(lessee))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_url_is_encoded() {
        let url = url_of(Path::new("/a%b/c?d/e#f/leases.db")).unwrap();

        assert_eq!(url, "sqlite:///a%25b/c%3Fd/e%23f/leases.db");
    }
}
