//! Prometheus' text format. Writing to a `String` cannot fail, so results of `write!` are dropped.

use std::fmt::Write;

use super::series::{Family, MetricKind, Reading};
use super::value::Histogram;

/// The names and values of labels, in the same order.
#[derive(Clone, Copy)]
pub(super) struct Labels<'a> {
    pub(super) names: &'static [&'static str],
    pub(super) values: &'a [String],
}

pub(super) fn head(out: &mut String, family: &Family) {
    let kind = match family.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    let _ = writeln!(out, "# HELP {} {}\n# TYPE {} {kind}", family.name, family.help, family.name);
}

pub(super) fn sample(out: &mut String, name: &str, labels: Labels<'_>, reading: &Reading<'_>) {
    match reading {
        Reading::Counter(value) => line(out, (name, ""), (labels, None), value),
        Reading::Gauge(value) => line(out, (name, ""), (labels, None), value),
        Reading::Histogram(histogram) => buckets(out, name, labels, histogram),
    }
}

fn buckets(out: &mut String, name: &str, labels: Labels<'_>, histogram: &Histogram) {
    let bounds = histogram.bounds();
    let cumulative = histogram.cumulative();
    let limits = bounds.labels.iter().copied().chain(["+Inf"]);
    for (limit, count) in limits.zip(&cumulative) {
        line(out, (name, "_bucket"), (labels, Some(limit)), count);
    }
    let sum = histogram.sum();
    if bounds.per_unit == 1 {
        line(out, (name, "_sum"), (labels, None), sum);
    } else {
        line(out, (name, "_sum"), (labels, None), sum as f64 / bounds.per_unit as f64);
    }
    line(out, (name, "_count"), (labels, None), cumulative.last().copied().unwrap_or(0));
}

fn line(
    out: &mut String,
    (name, suffix): (&str, &str),
    (labels, le): (Labels<'_>, Option<&str>),
    value: impl std::fmt::Display,
) {
    out.push_str(name);
    out.push_str(suffix);
    let pairs = labels.names.iter().copied().zip(labels.values.iter().map(String::as_str));
    let mut before = '{';
    for (name, value) in pairs.chain(le.map(|limit| ("le", limit))) {
        out.push(before);
        before = ',';
        out.push_str(name);
        out.push_str("=\"");
        escape(out, value);
        out.push('"');
    }
    if before == ',' {
        out.push('}');
    }
    let _ = writeln!(out, " {value}");
}

fn escape(out: &mut String, value: &str) {
    for char in value.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            char => out.push(char),
        }
    }
}
