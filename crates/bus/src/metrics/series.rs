//! The declaration of metrics: one place per metric, with its name, its kind and its help.

use super::value::{Counter, Gauge, Histogram};

/// One family of metrics.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Its name. A histogram's name has no `_bucket`.
    pub name: &'static str,
    /// Its help text, one line.
    pub help: &'static str,
    /// Its kind.
    pub kind: MetricKind,
}

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Counts by bucket.
    Histogram,
}

/// The value of a metric at one moment.
#[derive(Debug)]
pub enum Reading<'a> {
    /// The value of a counter.
    Counter(u64),
    /// The value of a gauge.
    Gauge(i64),
    /// A histogram, which is read bucket by bucket.
    Histogram(&'a Histogram),
}

/// A counter, gauge or histogram.
pub trait Metric {
    /// Its kind.
    const KIND: MetricKind;
    /// Its value now.
    fn reading(&self) -> Reading<'_>;
}

impl Metric for Counter {
    const KIND: MetricKind = MetricKind::Counter;

    fn reading(&self) -> Reading<'_> {
        Reading::Counter(self.get())
    }
}

impl Metric for Gauge {
    const KIND: MetricKind = MetricKind::Gauge;

    fn reading(&self) -> Reading<'_> {
        Reading::Gauge(self.get())
    }
}

impl Metric for Histogram {
    const KIND: MetricKind = MetricKind::Histogram;

    fn reading(&self) -> Reading<'_> {
        Reading::Histogram(self)
    }
}

/// All metrics that share one set of labels. Declared with [`series!`](crate::series).
pub trait Series: Default + Send + Sync + 'static {
    /// The names of the labels.
    const LABELS: &'static [&'static str];
    /// The families, in the order they are shown.
    const FAMILIES: &'static [Family];
    /// One reading for each family, in that order.
    fn readings(&self) -> Vec<Reading<'_>>;
}

/// Declares a struct of metrics that share one set of labels, with one entry per metric:
///
/// ```
/// use promethean_bus::metrics::Bounds;
///
/// promethean_bus::series! {
///     /// Counts of one door.
///     pub struct DoorSeries ["door"] {
///         /// Visitors.
///         pub visitors: Counter = "visitors_total", "People who came in.";
///         /// How long the door was open.
///         pub open_ms: Histogram(Bounds::DELIVERY_MS) = "open_ms", "Milliseconds the door was open.";
///     }
/// }
/// ```
#[macro_export]
macro_rules! series {
    (
        $(#[$doc:meta])*
        $vis:vis struct $name:ident [$($label:literal),*] {
            $(
                $(#[$field_doc:meta])*
                $field_vis:vis $field:ident: $kind:ident $(($bounds:expr))? = $family:literal, $help:literal;
            )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        $vis struct $name {
            $($(#[$field_doc])* $field_vis $field: $crate::metrics::$kind,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::series!(@new $kind $(($bounds))?),)* }
            }
        }

        impl $crate::metrics::Series for $name {
            const LABELS: &'static [&'static str] = &[$($label),*];
            const FAMILIES: &'static [$crate::metrics::Family] = &[$($crate::metrics::Family {
                name: $family,
                help: $help,
                kind: <$crate::metrics::$kind as $crate::metrics::Metric>::KIND,
            },)*];

            fn readings(&self) -> Vec<$crate::metrics::Reading<'_>> {
                vec![$($crate::metrics::Metric::reading(&self.$field)),*]
            }
        }
    };
    (@new $kind:ident ($bounds:expr)) => { $crate::metrics::$kind::new(&$bounds) };
    (@new $kind:ident) => { $crate::metrics::$kind::default() };
}
