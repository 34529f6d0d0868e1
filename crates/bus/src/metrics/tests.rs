use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use promethean_model::SystemClock;
use promethean_store::memory::{MemoryOptions, MemoryStore};
use proptest::prelude::*;

use super::*;
use crate::BusError;

/// A metrics page, parsed by a strict reader of the text format.
#[derive(Debug, Default)]
struct ScrapedPage {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<(String, Vec<(String, String)>), f64>,
}

impl ScrapedPage {
    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut helped = BTreeSet::new();
        let mut family = String::new();
        assert!(text.is_empty() || text.ends_with('\n'));
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("help has words");
                assert!(!help.is_empty() && helped.insert(name.to_owned()), "HELP twice: {name}");
                family = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("type has a kind");
                assert_eq!(name, family, "TYPE follows HELP");
                assert!(matches!(kind, "counter" | "gauge" | "histogram"));
                assert!(page.kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "TYPE twice: {name}");
            } else {
                page.sample(line, &family);
            }
        }
        page.check_histograms();
        page
    }

    fn sample(&mut self, line: &str, family: &str) {
        let name_len = line.find(['{', ' ']).expect("a name");
        let (name, mut rest) = line.split_at(name_len);
        let suffix = name.strip_prefix(family).expect("samples follow their family");
        let histogram = self.kinds[family] == "histogram";
        assert!(if histogram { ["_bucket", "_sum", "_count"].contains(&suffix) } else { suffix.is_empty() });
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            loop {
                let (label, after) = rest.split_once("=\"").expect("label=\"value\"");
                let (value, after) = unescape(after);
                labels.push((label.to_owned(), value));
                rest = after;
                match rest.strip_prefix(',') {
                    Some(more) => rest = more,
                    None => break,
                }
            }
            rest = rest.strip_prefix('}').expect("closed labels");
        }
        let value: f64 = rest.strip_prefix(' ').expect("one space").parse().expect("a number");
        let at = (name.to_owned(), labels);
        assert!(!self.samples.contains_key(&at), "twice: {at:?}");
        self.samples.insert(at, value);
    }

    fn check_histograms(&self) {
        let mut last: BTreeMap<_, (f64, f64)> = BTreeMap::new();
        let mut buckets: Vec<_> = Vec::new();
        for ((name, labels), count) in &self.samples {
            if let (Some(family), Some((le, limit))) = (name.strip_suffix("_bucket"), labels.last()) {
                assert_eq!(le, "le");
                let limit: f64 = limit.replace("+Inf", "inf").parse().unwrap();
                buckets.push((family, labels[..labels.len() - 1].to_vec(), limit, *count));
            }
        }
        buckets.sort_by(|a, b| a.2.total_cmp(&b.2));
        for (family, labels, limit, count) in buckets {
            let before = last.insert((family, labels), (limit, count)).unwrap_or((-1.0, 0.0));
            assert!(limit > before.0 && count >= before.1, "buckets ascend");
        }
        for ((family, labels), (limit, count)) in last {
            assert!(limit.is_infinite());
            assert_eq!(self.samples[&(format!("{family}_count"), labels.clone())], count);
            assert!(self.samples.contains_key(&(format!("{family}_sum"), labels)));
        }
    }

    fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.samples.get(&(name.to_owned(), labels)).copied()
    }
}

/// The label value up to its closing quote, and the rest of the text after the quote.
fn unescape(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, char @ ('"' | '\\'))) => char,
                other => panic!("escape {other:?}"),
            }),
            char => value.push(char),
        }
    }
    panic!("unclosed label value")
}

fn metrics(series_max: usize) -> BusMetrics {
    BusMetrics::new(&Registry::default(), series_max)
}

#[test]
fn all_families_show_from_the_first_scrape() {
    let page = ScrapedPage::parse(&metrics(10).render());
    for (name, kind) in [
        ("events_published_total", "counter"),
        ("events_delivered_total", "counter"),
        ("events_acked_total", "counter"),
        ("events_nacked_total", "counter"),
        ("events_inflight", "gauge"),
        ("ws_inflight", "gauge"),
        ("delivery_latency_ms", "histogram"),
        ("events_lag", "gauge"),
        ("dead_letters_open", "gauge"),
        ("events_redelivered_total", "counter"),
        ("commit_latency_ms", "histogram"),
        ("events_rate_limited_total", "counter"),
        ("requests_rejected_total", "counter"),
        ("log_bytes", "gauge"),
        ("sync_latency_ms", "histogram"),
        ("disk_free_bytes", "gauge"),
    ] {
        assert_eq!(page.kinds.get(name).map(String::as_str), Some(kind), "{name}");
    }
    assert_eq!(page.get("topics", &[]), Some(0.0));
}

#[test]
fn each_series_has_a_reading_for_each_family() {
    fn check<S: Series>() {
        let series = S::default();
        let kinds: Vec<MetricKind> = series
            .readings()
            .iter()
            .map(|reading| match reading {
                Reading::Counter(_) => MetricKind::Counter,
                Reading::Gauge(_) => MetricKind::Gauge,
                Reading::Histogram(_) => MetricKind::Histogram,
            })
            .collect();
        assert_eq!(kinds, S::FAMILIES.iter().map(|family| family.kind).collect::<Vec<_>>());
        assert!(S::FAMILIES.iter().all(|f| f.name.ends_with("_total") == (f.kind == MetricKind::Counter)));
    }
    check::<TopicSeries>();
    check::<GroupSeries>();
    check::<RejectSeries>();
    check::<ServerSeries>();
    check::<StoreSeries>();
}

#[test]
fn a_store_without_files_has_families_without_samples() {
    let metrics = metrics(10);
    metrics.measure_store(&MemoryStore::new(Arc::new(SystemClock::new()), MemoryOptions::default()));
    let text = metrics.render();
    let page = ScrapedPage::parse(&text);
    assert_eq!(page.kinds.get("disk_free_bytes").map(String::as_str), Some("gauge"));
    assert_eq!(page.get("disk_free_bytes", &[]), None);
    assert_eq!(page.get("sync_latency_ms_count", &[]), None);
}

#[test]
fn a_histogram_takes_over_counts() {
    let histogram = Histogram::new(&Bounds::SYNC_MS);
    histogram.set(&[1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 4], 30_000);
    histogram.set(&[2, 0, 2, 0, 0, 0, 0, 0, 0, 0, 4], 30_001);
    assert_eq!(histogram.cumulative(), [2, 2, 4, 4, 4, 4, 4, 4, 4, 4, 8]);
    assert_eq!(histogram.sum(), 30_001);
}

#[test]
fn counts_appear_under_their_labels() {
    let metrics = metrics(10);
    let (topic, group) = ("a.b".parse().unwrap(), "g".parse().unwrap());
    metrics.topic(&topic).published.add(3);
    metrics.topic(&topic).published.inc();
    let counts = metrics.group(&topic, &group);
    counts.delivered.add(2);
    counts.acked.inc();
    counts.latency_ms.observe(7);
    counts.set_lag(5);
    metrics.server().commit_us.observe(1_500);
    metrics.rejected(&BusError::Closed);
    let text = metrics.render();
    let page = ScrapedPage::parse(&text);
    let labels = [("topic", "a.b"), ("group", "g")];
    assert_eq!(page.get("events_published_total", &labels[..1]), Some(4.0));
    assert_eq!(page.get("events_delivered_total", &labels), Some(2.0));
    assert_eq!(page.get("events_lag", &labels), Some(5.0));
    assert_eq!(page.get("requests_rejected_total", &[("code", "closed")]), Some(1.0));
    assert_eq!(page.get("commit_latency_ms_sum", &[]), Some(1.5));
    assert!(text.contains("\ndelivery_latency_ms_bucket{topic=\"a.b\",group=\"g\",le=\"5\"} 0\n"));
    assert!(text.contains("\ndelivery_latency_ms_bucket{topic=\"a.b\",group=\"g\",le=\"10\"} 1\n"));
    assert!(text.contains("\ndelivery_latency_ms_sum{topic=\"a.b\",group=\"g\"} 7\n"));
}

#[test]
fn series_beyond_the_bound_are_counted_as_other() {
    let metrics = metrics(2);
    let group = "g".parse().unwrap();
    let holders: Vec<_> = (0..5).map(|n| metrics.group(&format!("t{n}").parse().unwrap(), &group)).collect();
    holders.iter().for_each(|holder| holder.set_lag(10));
    holders.iter().for_each(|holder| holder.acked.inc());
    holders[4].set_lag(1);
    let lag =
        || ScrapedPage::parse(&metrics.render()).get("events_lag", &[("topic", OTHER), ("group", OTHER)]);
    assert_eq!(lag(), Some(21.0));
    assert_eq!(ScrapedPage::parse(&metrics.render()).samples.len(), 3 * (13 + 11) + 5 + 13);
    drop(holders);
    assert_eq!(lag(), Some(0.0));
}

#[test]
fn a_topic_called_other_is_not_shown_twice() {
    let metrics = metrics(1);
    metrics.topic(&"a".parse().unwrap()).published.inc();
    metrics.topic(&"other".parse().unwrap()).published.inc();
    metrics.topic(&"b".parse().unwrap()).published.inc();
    let page = ScrapedPage::parse(&metrics.render());
    assert_eq!(page.get("events_published_total", &[("topic", OTHER)]), Some(2.0));
}

#[test]
fn shares_add_up_and_end_with_their_holder() {
    let metrics = metrics(10);
    let (topic, group) = ("t".parse().unwrap(), "g".parse().unwrap());
    let (a, b) = (metrics.group(&topic, &group), metrics.group(&topic, &group));
    a.set_ws_inflight(3);
    b.add_ws_inflight(5);
    b.add_ws_inflight(-1);
    a.set_ws_inflight(2);
    assert_eq!(a.ws_inflight.get(), 6);
    drop(b);
    assert_eq!(a.ws_inflight.get(), 2);
}

#[test]
fn deleted_topics_and_groups_are_not_on_the_page() {
    let metrics = metrics(10);
    let (topic, group) = ("t".parse().unwrap(), "g".parse().unwrap());
    metrics.topic(&topic).published.inc();
    let held = metrics.group(&topic, &group);
    metrics.group(&topic, &"h".parse().unwrap()).acked.inc();
    metrics.forget_group(&topic, &group);
    held.acked.inc();
    let text = metrics.render();
    assert!(!text.contains("group=\"g\"") && text.contains("group=\"h\"") && text.contains("topic=\"t\""));
    metrics.forget_topic(&topic);
    assert!(!metrics.render().contains("topic=\"t\""));
}

#[test]
fn other_crates_add_tables() {
    let registry = Registry::default();
    let _bus = BusMetrics::new(&registry, 1);
    let table: std::sync::Arc<MetricTable<Extra>> = registry.table(2);
    assert!(table.is_empty());
    table.series(&["x\"y\\z\nw"]).0.inc();
    let page = ScrapedPage::parse(&registry.render());
    assert_eq!(page.get("extra_total", &[("odd", "x\"y\\z\nw")]), Some(1.0));
    assert_eq!(table.len(), 1);
}

#[derive(Default)]
struct Extra(Counter);

impl Series for Extra {
    const LABELS: &'static [&'static str] = &["odd"];
    const FAMILIES: &'static [Family] =
        &[Family { name: "extra_total", help: "More.", kind: MetricKind::Counter }];

    fn readings(&self) -> Vec<Reading<'_>> {
        vec![Reading::Counter(self.0.get())]
    }
}

proptest! {
    #[test]
    fn any_label_value_is_read_back(values in proptest::collection::btree_set("[^\r]*", 0..8)) {
        let table = MetricTable::<Extra>::new(100);
        let registry = Registry::default();
        let shown = registry.table::<Extra>(100);
        for value in &values {
            table.series(&[value]).0.inc();
            shown.series(&[value]).0.inc();
        }
        prop_assert_eq!(table.len(), values.iter().filter(|value| *value != OTHER).count());
        let page = ScrapedPage::parse(&registry.render());
        for value in &values {
            prop_assert_eq!(page.get("extra_total", &[("odd", value)]), Some(1.0));
        }
    }
}
