//! What the gateway counts.

use std::sync::Arc;

use axum::http::StatusCode;
use promethean_bus::Bus;
use promethean_bus::metrics::{Counter, Family, Gauge, Kind, Reading, Series, Table};

/// Classes of statuses, by their first digit.
const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];
/// Series of requests: one for each operation and class, and what matches no operation.
const REQUEST_SERIES_MAX: usize = 1_000;

/// What tokens and addresses are limited in.
const QUOTAS: [&str; 4] = ["auth_failures", "connections", "subscriptions", "publish"];

/// The metrics of the gateway, shown on the bus's page.
#[derive(Debug)]
pub(crate) struct GatewayMetrics {
    connections: Arc<ConnectionSeries>,
    requests: Arc<Table<RequestSeries>>,
    over_quota: Arc<Table<QuotaSeries>>,
}

impl GatewayMetrics {
    pub(crate) fn new(bus: &Bus) -> Self {
        let registry = bus.metrics().registry();
        let connections = registry.table(1).series(&[]);
        let over_quota = registry.table(QUOTAS.len());
        QUOTAS.iter().for_each(|limit| drop(over_quota.series(&[limit])));
        Self { connections, requests: registry.table(REQUEST_SERIES_MAX), over_quota }
    }

    /// Counts a refusal for this limit.
    pub(crate) fn over_quota(&self, limit: &'static str) {
        self.over_quota.series(&[limit]).count.inc();
    }

    /// Counts a connection for as long as what is returned lives.
    pub(crate) fn connection(&self) -> OpenConnection {
        self.connections.accepted.inc();
        self.connections.open.add(1);
        OpenConnection(Arc::clone(&self.connections))
    }

    /// Counts an answer. Routes come from the table of operations, so there are only so many.
    pub(crate) fn answered(&self, method: &'static str, route: &'static str, status: StatusCode) {
        let class = CLASSES.get(usize::from(status.as_u16() / 100)).copied().unwrap_or("other");
        self.requests.series(&[method, route, class]).count.inc();
    }
}

/// A connection that is open.
#[derive(Debug)]
pub(crate) struct OpenConnection(Arc<ConnectionSeries>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.add(-1);
    }
}

#[derive(Debug, Default)]
struct ConnectionSeries {
    open: Gauge,
    accepted: Counter,
}

impl Series for ConnectionSeries {
    const LABELS: &'static [&'static str] = &[];
    const FAMILIES: &'static [Family] = &[
        Family { name: "connections", help: "Connections that are open.", kind: Kind::Gauge },
        Family { name: "connections_accepted_total", help: "Connections accepted.", kind: Kind::Counter },
    ];

    fn readings(&self) -> Vec<Reading<'_>> {
        vec![Reading::Gauge(self.open.get()), Reading::Counter(self.accepted.get())]
    }
}

#[derive(Debug, Default)]
struct RequestSeries {
    count: Counter,
}

impl Series for RequestSeries {
    const LABELS: &'static [&'static str] = &["method", "route", "status"];
    const FAMILIES: &'static [Family] = &[Family {
        name: "http_requests_total",
        help: "HTTP requests answered, by route and class of status.",
        kind: Kind::Counter,
    }];

    fn readings(&self) -> Vec<Reading<'_>> {
        vec![Reading::Counter(self.count.get())]
    }
}

#[derive(Debug, Default)]
struct QuotaSeries {
    count: Counter,
}

impl Series for QuotaSeries {
    const LABELS: &'static [&'static str] = &["limit"];
    const FAMILIES: &'static [Family] = &[Family {
        name: "quota_refusals_total",
        help: "Refusals because a token or an address used more than it may.",
        kind: Kind::Counter,
    }];

    fn readings(&self) -> Vec<Reading<'_>> {
        vec![Reading::Counter(self.count.get())]
    }
}
