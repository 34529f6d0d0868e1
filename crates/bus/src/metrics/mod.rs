//! The metrics of the bus, and their text for Prometheus.
//!
//! A caller looks the handle of a topic or group up once, and then counts without locks.
//! [`series!`](crate::series) declares a metric in one place, so every family shows HELP and TYPE from the
//! first scrape; other crates add tables of their own to the same [`Registry`].
//!
//! | module | holds |
//! | --- | --- |
//! | `value` | counters, gauges, histograms |
//! | `series` | the declaration of metrics, with `series!` |
//! | `registry` | tables of series with bounded labels, and the page of all of them |
//! | `text` | the text format |
//! | `catalogue` | the families of the bus |
//! | `handles` | the handles through which the bus counts |

mod catalogue;
mod handles;
mod registry;
mod series;
mod text;
mod value;

#[cfg(test)]
mod tests;

pub use catalogue::{GroupSeries, RejectSeries, ServerSeries, StoreSeries, TopicSeries};
pub use handles::{BusMetrics, GroupMetrics};
pub use registry::{MetricTable, OTHER, Registry};
pub use series::{Family, Metric, MetricKind, Reading, Series};
pub use value::{Bounds, Counter, Gauge, Histogram};
