//! The sessions that the row `changes` lists, and what their workers' own rows say.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use lease_core::store::{Ended, LeaseRecord, Parent};
use lease_core::{FencingToken, LeaseKey, Lessee};

use crate::names::Application;
use crate::plan::{Member, fleet, rendezvous_hash};
use crate::worker::view::notices::{self, Noticed};

/// One session of a worker: an attribute of the row `changes` has this name. A worker that starts again has
/// another token, so its counter never continues that of an earlier session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionId {
    name: Lessee,
    token: FencingToken,
}

#[derive(Debug, Default)]
pub(crate) struct Roster {
    listed: BTreeMap<SessionId, Listed>,
    /// The last known session whose row was read. The next one comes after it.
    turn: Option<SessionId>,
    /// The sessions whose shards are not free.
    live: HashSet<Parent>,
    /// Sessions whose end this worker has found, and whose attributes it removes.
    ended: BTreeSet<SessionId>,
    /// Workers without a session: their shards have leases with ttls, and they report no change.
    uncounted: BTreeMap<Lessee, Member>,
    /// Whether a member or a live session has changed.
    is_changed: bool,
}

#[derive(Debug)]
struct Listed {
    parent: Parent,
    /// `None` if the row `changes` no longer lists the session.
    count: Option<i64>,
    /// The count when the worker's own row was last read, and the number of the last notice then.
    read: Option<(Option<i64>, i64)>,
    /// The last count that was listed, until the worker's own row is read. It stays when the row `changes` no
    /// longer lists the session.
    unread: Option<i64>,
    is_unreadable: bool,
    member: Option<Member>,
    /// Whether the row `changes` says that the worker stops.
    is_leaving: bool,
    has_ended: bool,
}

/// Sessions whose counter has moved, with the keys of their workers' own rows.
#[derive(Debug)]
pub(crate) struct Unread {
    /// New sessions, ones that may have ended, workers that stop, and unreadable rows. They decide the plan, so they are
    /// read at each tick.
    pub(crate) urgent: Vec<UnreadRow>,
    /// In the order in which they are read.
    pub(crate) others: Vec<UnreadRow>,
}

pub(crate) type UnreadRow = (SessionId, LeaseKey);

/// What the row of a listed worker has shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// No notice, or no live session.
    None,
    /// The rows of these shards have changed.
    Shards(Vec<LeaseKey>),
    /// Notices are missing.
    Gap,
    /// The session has ended before its last notices were read.
    UnreadEnd(Parent),
}

impl SessionId {
    pub(crate) fn new(name: Lessee, token: FencingToken) -> Self {
        Self { name, token }
    }

    fn parse(text: &str) -> Option<Self> {
        let (token, name) = text.split_once(' ')?;
        let token = FencingToken::new(token.parse().ok()?).ok()?;
        Some(Self { name: Lessee::new(name).ok()?, token })
    }
}

impl SessionId {
    /// The attribute of the row `changes` by which all workers learn at once that this one stops.
    pub(crate) fn leaving(&self) -> String {
        format!("{LEAVING}{self}")
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.token.get(), self.name)
    }
}

impl Listed {
    fn new(parent: Parent) -> Self {
        let (count, read, unread, member) = (None, None, None, None);
        let (is_unreadable, is_leaving, has_ended) = (false, false, false);
        Self { parent, count, read, unread, is_unreadable, member, is_leaving, has_ended }
    }

    /// Whether the counter has moved since the worker's own row was read.
    fn is_unread(&self) -> bool {
        !self.has_ended && self.read.is_none_or(|(count, _)| count != self.count)
    }

    /// Whether the worker's own row was seen. A session that only a row of a shard names may have ended long ago.
    fn was_seen(&self) -> bool {
        self.read.is_some() || self.is_unreadable
    }
}

impl Roster {
    /// Takes over the counters of the row `changes`. A session that the row no longer lists stays until its
    /// own row was read, because an absent attribute proves nothing. Returns whether `own` is listed.
    pub(crate) fn update(
        &mut self,
        changes: Option<&LeaseRecord>,
        application: &Application,
        own: &SessionId,
    ) -> bool {
        for session in self.listed.values_mut() {
            session.count = None;
        }
        let attributes = || changes.map(|record| &record.attributes).into_iter().flatten();
        for (name, count) in attributes() {
            let (Some(id), Some(count)) = (SessionId::parse(name), count.as_i64()) else {
                continue;
            };
            let Ok(key) = application.worker(&id.name) else { continue };
            let parent = Parent::new(key, id.token);
            let session = self.listed.entry(id).or_insert_with(|| Listed::new(parent));
            session.count = Some(count);
            if session.is_unread() {
                session.unread = Some(count);
            }
        }
        let stops = |name: &String| SessionId::parse(name.strip_prefix(LEAVING)?);
        for id in attributes().filter_map(|(name, _)| stops(name)) {
            if let Some(session) = self.listed.get_mut(&id) {
                session.is_leaving = true;
            }
        }
        let is_former = |id: &&SessionId| id.name == own.name && id.token < own.token;
        let former: Vec<_> = self.listed.keys().filter(is_former).cloned().collect();
        for id in &former {
            // This worker knows what it has changed.
            let _news = self.found_ended(id);
        }
        self.listed.retain(|_, session| session.count.is_some() || !session.has_ended);
        self.ended.retain(|id| self.listed.contains_key(id));
        let Self { uncounted, listed, .. } = self;
        let has_session =
            |name: &Lessee| listed.iter().any(|(id, it)| id.name == *name && !it.has_ended);
        uncounted.retain(|name, _| !has_session(name));
        self.listed.get(own).is_some_and(|session| session.count.is_some())
    }

    /// The number of sessions that are known, `own` included.
    pub(crate) fn sessions(&self) -> usize {
        self.listed.len()
    }

    /// A row of a shard names this session. The row `changes` may lack it, if its worker cannot count.
    pub(crate) fn learn(&mut self, holder: &Lessee, session: &Parent, me: &Lessee) {
        let id = SessionId::new(holder.clone(), session.token);
        let is_superseded = self.listed.keys().any(|it| it.name == id.name && it.token > id.token);
        if *holder != *me && !is_superseded {
            self.listed.entry(id).or_insert_with(|| Listed::new(session.clone()));
        }
    }

    /// The sessions whose counter has moved.
    pub(crate) fn unread(&self, own: &SessionId) -> Unread {
        let unread = self.listed.iter().filter(|(id, it)| *id != own && it.is_unread());
        // Rows of shards may name many sessions that have ended long ago.
        let is_urgent = |session: &Listed| {
            session.read.is_none() != session.count.is_none()
                || session.is_leaving
                || session.is_unreadable
        };
        let (urgent, others): (Vec<_>, Vec<_>) = unread.partition(|(_, it)| is_urgent(it));
        let is_later = |id: &SessionId| self.turn.as_ref().is_none_or(|turn| id > turn);
        let (later, earlier): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(id, _)| is_later(id));
        let row = |(id, session): (&SessionId, &Listed)| (id.clone(), session.parent.key.clone());
        Unread {
            urgent: urgent.into_iter().map(row).collect(),
            others: later.into_iter().chain(earlier).map(row).collect(),
        }
    }

    /// The next turn begins after this session.
    pub(crate) fn end_turn(&mut self, last: &SessionId) {
        self.turn = Some(last.clone());
    }

    /// Takes over the row of a listed worker. Returns the notices that this worker does not know yet.
    pub(crate) fn read(
        &mut self,
        id: &SessionId,
        record: Option<&LeaseRecord>,
        application: &Application,
    ) -> News {
        let Some(session) = self.listed.get_mut(id) else { return News::None };
        session.is_unreadable = false;
        if record.is_some_and(|record| Ended::shown_by(record, &session.parent).is_some()) {
            return self.end(id);
        }
        let held =
            record.filter(|record| record.holder.is_some() && record.token == Some(id.token));
        let Some(record) = held else {
            // The row is absent, or the session has expired. The next worker of the ring writes the end.
            self.is_changed |= session.member.take().is_some();
            session.read = Some((session.count, session.read.map_or(0, |(_, last)| last)));
            return if session.count.is_none() { self.end(id) } else { News::None };
        };
        let seen = session.read.map_or(0, |(_, last)| last);
        let noticed = Noticed::after(seen, record, application);
        let is_old = noticed.count.zip(session.count).is_some_and(|(row, count)| row.0 < count);
        let row_count = noticed.count.map(|count| count.0);
        // The worker may write the row again. If it does not, a late write has removed notices.
        let is_old_again = is_old && session.read.is_some_and(|(count, _)| count == row_count);
        let member = fleet::member(record);
        self.is_changed |= session.member != member;
        session.member = member;
        let count = if is_old && !is_old_again { row_count } else { session.count };
        session.read = Some((count, noticed.last));
        session.unread = session.count.filter(|_| session.is_unread());
        self.is_changed |= self.live.insert(session.parent.clone());
        noticed.shards.filter(|_| !is_old_again).map_or(News::Gap, News::Shards)
    }

    /// The row of a listed worker cannot be read. The worker is no member, but it may hold shards.
    pub(crate) fn skip(&mut self, id: &SessionId) {
        let Some(session) = self.listed.get_mut(id) else { return };
        session.is_unreadable = true;
        self.is_changed |= session.member.take().is_some();
        self.is_changed |= self.live.insert(session.parent.clone());
    }

    /// Takes over the members of a list of all rows. A worker without a listed session either has no session, or has
    /// not counted yet.
    pub(crate) fn list(&mut self, members: &[Member], me: &Lessee) {
        let sessions = self.names();
        for member in members {
            let is_other = member.name != *me && !sessions.contains(&member.name);
            if is_other && !self.uncounted.contains_key(&member.name) {
                self.uncounted.insert(member.name.clone(), member.clone());
                self.is_changed = true;
            }
        }
    }

    /// The workers without a session whose rows to read: the known ones, and `holders` of shards.
    pub(crate) fn uncounted(&self, holders: BTreeSet<Lessee>, me: &Lessee) -> BTreeSet<Lessee> {
        let mut names = holders;
        names.extend(self.uncounted.keys().cloned());
        if names.is_empty() {
            return names;
        }
        let sessions = self.names();
        names.retain(|name| name != me && !sessions.contains(name));
        names
    }

    fn names(&self) -> BTreeSet<Lessee> {
        let sessions = self.listed.iter().filter(|(_, session)| !session.has_ended);
        sessions.map(|(id, _)| id.name.clone()).collect()
    }

    /// Takes over the row of a worker without a session.
    pub(crate) fn read_uncounted(&mut self, name: &Lessee, record: Option<&LeaseRecord>) {
        let member = record.and_then(fleet::member).filter(|member| member.name == *name);
        self.is_changed |= self.uncounted.get(name) != member.as_ref();
        if let Some(member) = member {
            self.uncounted.insert(name.clone(), member);
        } else {
            self.uncounted.remove(name);
        }
    }

    pub(crate) fn has_uncounted_members(&self) -> bool {
        !self.uncounted.is_empty()
    }

    pub(crate) fn is_uncounted_member(&self, name: &Lessee) -> bool {
        self.uncounted.contains_key(name)
    }

    /// A worker has obtained its own session.
    pub(crate) fn start(&mut self, session: Parent) {
        self.live.insert(session);
        self.is_changed = true;
    }

    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// The shards of the session are free from now on. A worker that stops removes its row, so its last notices are
    /// missing if its counter has moved since the last read.
    fn end(&mut self, id: &SessionId) -> News {
        let Some(session) = self.listed.get_mut(id) else { return News::None };
        (session.member, session.has_ended) = (None, true);
        self.live.remove(&session.parent);
        self.is_changed = true;
        session.unread.take().map_or(News::None, |_| News::UnreadEnd(session.parent.clone()))
    }

    /// This worker has proved the end of the session. It removes the session's attribute.
    pub(crate) fn found_ended(&mut self, id: &SessionId) -> News {
        self.ended.insert(id.clone());
        self.end(id)
    }

    pub(crate) fn to_remove(&self) -> impl Iterator<Item = &SessionId> {
        self.ended.iter()
    }

    /// All sessions but `own`, in the order of the ring, from the successor of `own` on. A session stays in the
    /// ring while its row holds, even if the row `changes` no longer lists it: no other worker may see its end.
    pub(crate) fn ring(&self, own: &SessionId) -> Vec<SessionId> {
        let after = self.listed.range::<SessionId, _>(own..).filter(|(id, _)| *id != own);
        let ring = after.chain(self.listed.range::<SessionId, _>(..own));
        let ring = ring.filter(|(_, session)| session.count.is_some() || session.was_seen());
        ring.map(|(id, _)| id.clone()).collect()
    }

    /// Whether the row `changes` no longer lists the session. Another worker may never have seen its counter.
    pub(crate) fn is_uncounted(&self, id: &SessionId) -> bool {
        let is_uncounted = |session: &Listed| session.count.is_none() && session.was_seen();
        self.listed.get(id).is_some_and(is_uncounted)
    }

    /// Whether `record` has fewer notices than an earlier read. Then it is stale, or a late write has replaced it.
    pub(crate) fn is_older(&self, id: &SessionId, record: &LeaseRecord) -> bool {
        let read = self.listed.get(id).and_then(|session| session.read);
        read.is_some_and(|(_, seen)| notices::last(record) < seen)
    }

    pub(crate) fn parent(&self, id: &SessionId) -> Option<&Parent> {
        self.listed.get(id).map(|session| &session.parent)
    }

    pub(crate) fn is_known_to_have_ended(&self, id: &SessionId) -> bool {
        self.listed.get(id).is_some_and(|session| session.has_ended)
    }

    pub(crate) fn members(&self) -> Vec<Member> {
        let sessions = self.listed.values().filter_map(|session| session.member.as_ref());
        sessions.chain(self.uncounted.values()).cloned().collect()
    }

    pub(crate) fn is_live(&self, session: &Parent) -> bool {
        self.live.contains(session)
    }
}

/// Before the name of a session. No session has such a name, since a name begins with a token.
const LEAVING: &str = "leaving ";

/// A number below `count`, which differs from tick to tick and from worker to worker.
pub(crate) fn any_below(count: usize, worker: &Lessee, tick: u64) -> Option<usize> {
    let hash = rendezvous_hash(&tick.to_string(), worker.as_str());
    usize::try_from(hash % u64::try_from(count).ok().filter(|count| *count > 0)?).ok()
}
