//! HTTP: one table of operations drives the router and `/openapi.json`.
//!
//! | module | holds |
//! | --- | --- |
//! | `operation`, `param_type` | what one operation is: path, parameters and their types, body, answers, access |
//! | `table` | all operations, and which of them a request means |
//! | `dispatch` | from a request to its answer: limits, origins, access, panics, what every answer carries |
//! | `call`, `args`, `request_body` | what a handler is given: the client, its parameters, its body |
//! | `routes` | the handlers, by what they are about |
//! | `reply` | answers: JSON, and bodies that are written while they are made |
//! | `openapi` | the description of it all |

mod args;
mod call;
pub(crate) mod dispatch;
mod etag;
mod openapi;
mod operation;
mod param_type;
mod reply;
mod request_body;
mod routes;
pub(crate) mod table;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use promethean_bus::Publisher;

use crate::app::App;
use crate::metrics::OpenConnection;

/// Everything that is served.
pub(crate) fn router(app: App) -> Router {
    Router::new().fallback(dispatch::serve).with_state(dispatch::Http::new(app))
}

/// What the requests of one connection share. To be put into the extensions of each.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionContext {
    /// Where it comes from.
    pub(crate) peer: IpAddr,
    /// No faster than one connection may publish.
    pub(crate) publisher: Arc<Publisher>,
    /// Counted for as long as this lives.
    _open: Arc<OpenConnection>,
}

impl ConnectionContext {
    /// A connection that was accepted now.
    pub(crate) fn new(app: &App, peer: IpAddr) -> Self {
        let publisher = Arc::new(app.bus.publisher(app.options.publish_rate));
        Self { peer, publisher, _open: Arc::new(app.metrics.connection()) }
    }
}
