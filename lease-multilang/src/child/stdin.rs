//! Reads stdin on a thread that the runtime does not wait for.

use std::io::{self, Read};
use std::thread;

use tokio::io::{AsyncRead, AsyncWriteExt, duplex};
use tokio::runtime::Handle;
use tracing::warn;

use super::error::ChildError;

/// A runtime that shuts down would wait for the thread of tokio's stdin.
pub(super) fn read() -> Result<impl AsyncRead + Unpin + Send, ChildError> {
    let (mut there, here) = duplex(CHUNK);
    let runtime = Handle::current();
    let read = move || {
        let mut chunk = vec![0; CHUNK];
        loop {
            match io::stdin().lock().read(&mut chunk) {
                Ok(0) => return,
                Ok(length) => {
                    let bytes = chunk.get(..length).unwrap_or_default();
                    if runtime.block_on(there.write_all(bytes)).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "stdin cannot be read");
                    return;
                }
            }
        }
    };
    let reader = thread::Builder::new().name("multilang-stdin".into()).spawn(read);
    drop(reader.map_err(ChildError::Read)?);
    Ok(here)
}

/// The capacity of a pipe on Linux.
const CHUNK: usize = 64 * 1024;
