//! Another program writes a list under the name of a lease.

use crate::failure::Failure;
use crate::load::name_in_redis;
use crate::servers::Servers;

/// Writes a list under the name of a free key, on all servers. Returns whether the key has become a
/// list.
///
/// A server refuses the list if the key is held, so the fault takes no lease from its holder.
pub(crate) fn spoil(servers: &mut Servers, key: usize) -> Result<bool, Failure> {
    let push = format!("RPUSH {} another-program", name_in_redis(key));
    for server in 0..servers.count() {
        let answer = servers.get(server)?.command(&push);
        if answer.parse::<u64>().is_err() {
            delete(servers, key)?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Deletes the list on all servers, but no lock: a server may have lost the list, and granted the
/// key.
pub(crate) fn delete(servers: &mut Servers, key: usize) -> Result<(), Failure> {
    let script = "if redis.call('TYPE', KEYS[1]).ok == 'list' then redis.call('DEL', KEYS[1]) end";
    let delete = format!("EVAL \"{script}\" 1 {}", name_in_redis(key));
    for server in 0..servers.count() {
        servers.get(server)?.command(&delete);
    }
    Ok(())
}
