//! The connections that are open, for admins to see.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use promethean_model::IgnorePoison;

use crate::auth::{Identity, IdentityKind};

/// All connections that are open.
#[derive(Debug, Default)]
pub(crate) struct ConnectionList {
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<ConnectionEntry>>>,
}

/// What is known of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionEntry {
    /// Its number, which is never used again while the server runs.
    pub(crate) number: u64,
    /// The address of the client.
    pub(crate) peer: IpAddr,
    /// When it was accepted, epoch ms.
    pub(crate) since_ms: i64,
    is_websocket: AtomicBool,
    subscriptions: AtomicUsize,
    client: Mutex<Option<(IdentityKind, Arc<str>)>>,
}

/// A connection in the list, until this is dropped.
#[derive(Debug)]
pub(crate) struct ListedConnection {
    list: Arc<ConnectionList>,
    state: Arc<ConnectionEntry>,
}

impl ConnectionList {
    /// Adds a connection that was just accepted.
    pub(crate) fn add(self: &Arc<Self>, peer: IpAddr, since_ms: i64) -> ListedConnection {
        let state = Arc::new(ConnectionEntry {
            number: self.next.fetch_add(1, Ordering::Relaxed) + 1,
            peer,
            since_ms,
            is_websocket: AtomicBool::new(false),
            subscriptions: AtomicUsize::new(0),
            client: Mutex::default(),
        });
        self.open.lock().ignore_poison().insert(state.number, Arc::clone(&state));
        ListedConnection { list: Arc::clone(self), state }
    }

    /// Connections after this number, at most `limit`, and whether there are more.
    pub(crate) fn page(&self, after: u64, limit: usize) -> (Vec<Arc<ConnectionEntry>>, bool) {
        let open = self.open.lock().ignore_poison();
        let mut rest = open.range((Bound::Excluded(after), Bound::Unbounded)).map(|(_, state)| state);
        let page = rest.by_ref().take(limit).cloned().collect();
        (page, rest.next().is_some())
    }
}

impl ConnectionEntry {
    /// The protocol that it speaks.
    pub(crate) fn protocol(&self) -> &'static str {
        if self.is_websocket.load(Ordering::Relaxed) { "websocket" } else { "http" }
    }

    /// How many subscriptions it has.
    pub(crate) fn subscriptions(&self) -> usize {
        self.subscriptions.load(Ordering::Relaxed)
    }

    /// The kind and name of the client that used it last; `None` if it has shown no valid token.
    pub(crate) fn client(&self) -> Option<(IdentityKind, Arc<str>)> {
        self.client.lock().ignore_poison().clone()
    }
}

impl ListedConnection {
    /// The client behind the connection is this one.
    pub(crate) fn belong_to(&self, identity: &Identity) {
        let mut client = self.state.client.lock().ignore_poison();
        let is_same =
            |(kind, name): &(IdentityKind, Arc<str>)| *kind == identity.kind && *name == identity.name;
        if !client.as_ref().is_some_and(is_same) {
            *client = Some((identity.kind, Arc::clone(&identity.name)));
        }
    }

    /// The connection is a WebSocket from now on.
    pub(crate) fn upgraded(&self) {
        self.state.is_websocket.store(true, Ordering::Relaxed);
    }

    /// The connection has this many subscriptions now.
    pub(crate) fn subscribed(&self, subscriptions: usize) {
        self.state.subscriptions.store(subscriptions, Ordering::Relaxed);
    }
}

impl Drop for ListedConnection {
    fn drop(&mut self) {
        self.list.open.lock().ignore_poison().remove(&self.state.number);
    }
}
