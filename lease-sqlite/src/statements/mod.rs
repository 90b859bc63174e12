//! The SQL statements. Each statement decides and writes in one step.
//!
//! Start with `obtain.sql`. `create_tables.sql` describes the columns. Every other file has the name of its
//! request. `first_seen.sql` moves rows of another boot to this boot, `remove.sql` removes outdated rows, and
//! `upgrade.sql` adds what files of earlier versions lack.
//! [`functions`](crate::functions) defines `boot_time()`, `boot_id()`, `wall_time()` and `meets()`.

use std::borrow::Cow;

/// Tests change a text, to check that a promise then breaks.
#[derive(Debug, Clone)]
pub(crate) struct Statements {
    pub(crate) adopt: Cow<'static, str>,
    pub(crate) count: Cow<'static, str>,
    pub(crate) create: Cow<'static, str>,
    pub(crate) delete: Cow<'static, str>,
    pub(crate) dequeue: Cow<'static, str>,
    pub(crate) end_session: Cow<'static, str>,
    pub(crate) enqueue: Cow<'static, str>,
    pub(crate) evict: Cow<'static, str>,
    pub(crate) first_seen: Cow<'static, str>,
    pub(crate) heartbeat: Cow<'static, str>,
    /// A test makes this text empty, to switch off the checks for a replaced file.
    pub(crate) identity: Cow<'static, str>,
    pub(crate) list: Cow<'static, str>,
    pub(crate) obtain: Cow<'static, str>,
    pub(crate) obtain_under: Cow<'static, str>,
    pub(crate) queue: Cow<'static, str>,
    pub(crate) read: Cow<'static, str>,
    pub(crate) release: Cow<'static, str>,
    pub(crate) remove: Cow<'static, str>,
    pub(crate) remove_places: Cow<'static, str>,
    pub(crate) renew: Cow<'static, str>,
    pub(crate) reserve: Cow<'static, str>,
    pub(crate) update: Cow<'static, str>,
}

impl Default for Statements {
    fn default() -> Self {
        Self {
            adopt: include_str!("adopt.sql").into(),
            count: include_str!("count.sql").into(),
            create: include_str!("create.sql").into(),
            delete: include_str!("delete.sql").into(),
            dequeue: include_str!("dequeue.sql").into(),
            end_session: include_str!("end_session.sql").into(),
            enqueue: include_str!("enqueue.sql").into(),
            evict: include_str!("evict.sql").into(),
            first_seen: include_str!("first_seen.sql").into(),
            heartbeat: include_str!("heartbeat.sql").into(),
            identity: "checked".into(),
            list: include_str!("list.sql").into(),
            obtain: include_str!("obtain.sql").into(),
            obtain_under: include_str!("obtain_under.sql").into(),
            queue: include_str!("queue.sql").into(),
            read: include_str!("read.sql").into(),
            release: include_str!("release.sql").into(),
            remove: include_str!("remove.sql").into(),
            remove_places: include_str!("remove_places.sql").into(),
            renew: include_str!("renew.sql").into(),
            reserve: include_str!("reserve.sql").into(),
            update: include_str!("update.sql").into(),
        }
    }
}

#[cfg(feature = "simulation")]
impl Statements {
    /// Returns whether the statement had `old` once.
    pub(crate) fn replace(&mut self, name: &str, old: &str, new: &str) -> bool {
        let text = match name {
            "adopt" => &mut self.adopt,
            "count" => &mut self.count,
            "create" => &mut self.create,
            "delete" => &mut self.delete,
            "dequeue" => &mut self.dequeue,
            "end_session" => &mut self.end_session,
            "enqueue" => &mut self.enqueue,
            "evict" => &mut self.evict,
            "first_seen" => &mut self.first_seen,
            "heartbeat" => &mut self.heartbeat,
            "identity" => &mut self.identity,
            "list" => &mut self.list,
            "obtain" => &mut self.obtain,
            "obtain_under" => &mut self.obtain_under,
            "queue" => &mut self.queue,
            "read" => &mut self.read,
            "release" => &mut self.release,
            "remove" => &mut self.remove,
            "remove_places" => &mut self.remove_places,
            "renew" => &mut self.renew,
            "reserve" => &mut self.reserve,
            "update" => &mut self.update,
            _ => return false,
        };
        let is_unique = text.matches(old).count() == 1;
        *text = text.replacen(old, new, 1).into();
        is_unique
    }
}

pub(crate) const CREATE_TABLES: &str = include_str!("create_tables.sql");
pub(crate) const UPGRADE: &str = include_str!("upgrade.sql");
