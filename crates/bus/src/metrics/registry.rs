//! Tables of series with bounded labels, and the metrics page of all tables.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use promethean_model::IgnorePoison;

use super::series::Series;
use super::text;

/// The label value of all series beyond the bound of a table.
pub const OTHER: &str = "other";

/// Series by label values, at most `series_max` of them. All further ones are counted together under the
/// label value `other`.
#[derive(Debug)]
pub struct MetricTable<S> {
    series_max: usize,
    series: RwLock<BTreeMap<Vec<String>, Arc<S>>>,
    other: Arc<S>,
    other_used: AtomicBool,
}

/// All tables of the metrics page. Cheap to clone; clones share the tables.
#[derive(Clone, Default)]
pub struct Registry {
    tables: Arc<RwLock<Vec<Arc<dyn MetricPage>>>>,
}

/// A table whose series are of any type.
trait MetricPage: Send + Sync {
    fn write(&self, out: &mut String);
}

impl<S: Series> MetricTable<S> {
    /// A table without series.
    pub fn new(series_max: usize) -> Self {
        Self {
            series_max,
            series: RwLock::default(),
            other: Arc::new(S::default()),
            other_used: AtomicBool::new(false),
        }
    }

    /// The series with these label values. It is created if there is room; else this is the series `other`.
    /// The caller should keep it, because a lookup takes a lock.
    pub fn series(&self, labels: &[&str]) -> Arc<S> {
        // A topic whose name is `other` must not become a second series with that label.
        let is_other = !labels.is_empty() && labels.iter().all(|label| *label == OTHER);
        if !is_other {
            let key: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
            let mut all = self.series.write().ignore_poison();
            if let Some(series) = all.get(&key) {
                return Arc::clone(series);
            }
            if all.len() < self.series_max {
                return Arc::clone(all.entry(key).or_default());
            }
        }
        self.other_used.store(true, Ordering::Relaxed);
        Arc::clone(&self.other)
    }

    /// Removes a series from the page. What its remaining handles count is not shown any more.
    pub fn remove(&self, labels: &[&str]) {
        self.retain(|given| given.iter().ne(labels.iter()));
    }

    /// Removes all series whose label values are not wanted.
    pub fn retain(&self, wanted: impl Fn(&[String]) -> bool) {
        let mut all = self.series.write().ignore_poison();
        all.retain(|labels, _| wanted(labels));
    }

    /// How many series there are, not counting `other`.
    pub fn len(&self) -> usize {
        self.series.read().ignore_poison().len()
    }

    /// Whether there are no series, not counting `other`.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn all(&self) -> Vec<(Vec<String>, Arc<S>)> {
        let all = self.series.read().ignore_poison();
        let mut series: Vec<_> = all.iter().map(|(labels, s)| (labels.clone(), Arc::clone(s))).collect();
        if self.other_used.load(Ordering::Relaxed) {
            series.push((vec![OTHER.to_owned(); S::LABELS.len()], Arc::clone(&self.other)));
        }
        series
    }
}

impl<S: Series> MetricPage for MetricTable<S> {
    fn write(&self, out: &mut String) {
        let all = self.all();
        let readings: Vec<_> = all.iter().map(|(labels, series)| (labels, series.readings())).collect();
        for (index, family) in S::FAMILIES.iter().enumerate() {
            text::head(out, family);
            for (labels, readings) in &readings {
                if let Some(reading) = readings.get(index) {
                    text::sample(
                        out,
                        family.name,
                        text::Labels { names: S::LABELS, values: labels },
                        reading,
                    );
                }
            }
        }
    }
}

impl Registry {
    /// Adds a new table at the end of the page.
    pub fn table<S: Series>(&self, series_max: usize) -> Arc<MetricTable<S>> {
        let table = Arc::new(MetricTable::new(series_max));
        let mut tables = self.tables.write().ignore_poison();
        tables.push(Arc::clone(&table) as Arc<dyn MetricPage>);
        table
    }

    /// The page, in Prometheus' text format 0.0.4.
    pub fn render(&self) -> String {
        let tables = self.tables.read().ignore_poison().clone();
        let mut out = String::new();
        tables.iter().for_each(|table| table.write(&mut out));
        out
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}
