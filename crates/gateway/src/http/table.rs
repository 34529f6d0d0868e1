//! All operations, and finding the one for a request.

use super::args::decode;
use super::operation::{Operation, Verb};
use super::routes;
use crate::metrics::Route;

/// Every operation, by subject.
pub(super) const ALL: &[&[Operation]] = &[
    routes::publish::OPERATIONS,
    routes::batch::OPERATIONS,
    routes::replay::OPERATIONS,
    routes::export::OPERATIONS,
    routes::stream::OPERATIONS,
    routes::lookup::OPERATIONS,
    routes::groups::OPERATIONS,
    routes::dead_letters::OPERATIONS,
    routes::topics::OPERATIONS,
    routes::schemas::OPERATIONS,
    routes::dedupe::OPERATIONS,
    routes::collections::OPERATIONS,
    routes::projectors::OPERATIONS,
    routes::state::OPERATIONS,
    routes::server::OPERATIONS,
    routes::identity::OPERATIONS,
    routes::admin::OPERATIONS,
    routes::backups::OPERATIONS,
    routes::dashboard::OPERATIONS,
];

/// Every operation.
pub(super) fn operations() -> impl Iterator<Item = &'static Operation> {
    ALL.iter().flat_map(|operations| operations.iter())
}

/// The route of an operation, for metrics; `None` is a request that matches no operation.
pub(super) fn route(operation: Option<&Operation>) -> Route {
    let Some(operation) = operation else {
        return Route { number: routes() - 1, method: "", path: "unmatched" };
    };
    let number = operations().position(|other| std::ptr::eq(other, operation)).unwrap_or_default();
    Route { number, method: operation.verb.as_str(), path: operation.path }
}

/// The route of the WebSocket, for metrics.
pub(super) fn websocket() -> Route {
    Route { number: routes() - 2, method: "GET", path: "/ws" }
}

/// The number of routes: one for each operation, one for the WebSocket, one for everything else.
pub(crate) fn routes() -> usize {
    operations().count() + 2
}

/// The result of looking a request up.
#[derive(Debug)]
pub(super) enum RouteFound {
    /// An operation, and the words of the path for the names in its template.
    Operation(&'static Operation, Vec<String>),
    /// The path exists, but only for these methods.
    OtherMethod(Vec<Verb>),
    /// The encoding of the path is malformed.
    Malformed,
    /// No operation has this path.
    Nothing,
}

/// Finds the operation of a request.
pub(super) fn find(verb: Option<Verb>, path: &str) -> RouteFound {
    let fits = |operation: &'static Operation| Some((operation, matches(operation.path, path)?));
    let mut found: Vec<_> = operations().filter_map(fits).collect();
    // A fixed word wins over a parameter: `/schemas/t/check` has no version `check`.
    let names = found.iter().map(|(_, words)| words.len()).min();
    found.retain(|(_, words)| Some(words.len()) == names);
    let mut others = Vec::new();
    for (operation, words) in found {
        if Some(operation.verb) != verb {
            others.push(operation.verb);
            continue;
        }
        let decoded: Option<Vec<String>> = words.into_iter().map(|word| decode(word, false)).collect();
        return decoded.map_or(RouteFound::Malformed, |words| RouteFound::Operation(operation, words));
    }
    if others.is_empty() { RouteFound::Nothing } else { RouteFound::OtherMethod(others) }
}

/// The words of a path for the names in a template, if the path fits the template.
fn matches<'p>(template: &str, path: &'p str) -> Option<Vec<&'p str>> {
    let (mut expected, mut given) = (template.split('/'), path.split('/'));
    let mut words = Vec::new();
    loop {
        match (expected.next(), given.next()) {
            (None, None) => return Some(words),
            (Some(name), Some(word)) if name.starts_with('{') && !word.is_empty() => words.push(word),
            (Some(expected), Some(word)) if expected == word => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::operation::ParamPlace;
    use super::*;

    #[test]
    fn paths_are_matched_whole() {
        assert_eq!(matches("/a/{b}/c", "/a/x/c"), Some(vec!["x"]));
        for path in ["/a//c", "/a/x", "/a/x/c/", "/a/x/c/d", "a/x/c", "", "/A/x/c"] {
            assert_eq!(matches("/a/{b}/c", path), None, "{path}");
        }
        assert_eq!(matches("/", "/"), Some(vec![]));
        assert_eq!(matches("/", ""), None);
    }

    #[test]
    fn every_operation_is_one_of_a_kind_and_names_the_words_of_its_path() {
        let mut ids = BTreeSet::new();
        let mut routes = BTreeSet::new();
        for operation in operations() {
            assert!(ids.insert(operation.id), "{}", operation.id);
            assert!(routes.insert((operation.verb.as_str(), operation.path)), "{}", operation.path);
            let named: Vec<&str> =
                operation.params.iter().filter(|p| p.place == ParamPlace::Path).map(|p| p.name).collect();
            let words = operation.path.split('/').filter_map(|w| w.strip_prefix('{')?.strip_suffix('}'));
            assert_eq!(words.collect::<Vec<_>>(), named, "{}", operation.path);
        }
    }
}
