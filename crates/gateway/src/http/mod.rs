//! HTTP. **Invariant**: one table of operations makes the router, the checks, the access and `/openapi.json`.
//!
//! | module | holds |
//! | --- | --- |
//! | `operation`, `param_type` | the form of an operation: path, parameters and their types, body, answers, access |
//! | `table` | all operations, and finding the one for a request |
//! | `dispatch` | from a request to its answer: limits, origins, access, panics, common headers |
//! | `call`, `args`, `request_body` | what a handler gets: the client, the parameters, the body |
//! | `routes` | the operations and their handlers, by subject |
//! | `reply` | answers: JSON, and bodies that are written while they are made |
//! | `stored_headers` | which headers of a request become headers of the event |
//! | `etag` | entity tags |
//! | `dashboard` | the files of the dashboard, embedded |
//! | `openapi` | the description of all operations |

mod args;
mod call;
mod dashboard;
pub(crate) mod dispatch;
mod etag;
mod openapi;
mod operation;
mod param_type;
mod reply;
mod request_body;
mod routes;
pub(crate) mod stored_headers;
pub(crate) mod table;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use promethean_bus::Publisher;

use crate::app::App;
use crate::listen::connection_list::ListedConnection;
use crate::listen::slots::SlotHandle;
use crate::metrics::OpenConnection;

/// The router for all requests.
pub(crate) fn router(app: App) -> Router {
    Router::new().fallback(dispatch::serve).with_state(dispatch::HttpState::new(app))
}

/// The state that the requests of one connection share; in the extensions of each request.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionContext {
    /// The address of the client.
    pub(crate) peer: IpAddr,
    /// Publishes at most at the rate of one connection.
    pub(crate) publisher: Arc<Publisher>,
    /// The connection's place.
    pub(crate) slot: SlotHandle,
    /// The connection in the list that admins see.
    pub(crate) listed: Arc<ListedConnection>,
    /// Counts the connection as open.
    _open: Arc<OpenConnection>,
}

impl ConnectionContext {
    /// For a connection that was just accepted.
    pub(crate) fn new(app: &App, peer: IpAddr, slot: SlotHandle) -> Self {
        let publisher = Arc::new(app.bus.publisher(app.options.publish_rate));
        let listed = Arc::new(app.connections.add(peer, app.clock.wall_ms()));
        Self { peer, publisher, slot, listed, _open: Arc::new(app.metrics.connection()) }
    }
}
