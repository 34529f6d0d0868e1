//! Compares the HTTP statuses of error codes in the code, in the protocol's document and in that of the routes.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::is_word;
use crate::report::Report;

/// The statuses of the bus's errors.
pub(crate) const STATUS_SOURCE: &str = "crates/gateway/src/refusal.rs";
/// The codes of the bus's errors.
pub(crate) const CODE_SOURCE: &str = "crates/bus/src/error/code.rs";
/// The document with the table of statuses.
pub(crate) const ROUTES: &str = "docs/http.md";

/// The statuses that each code can have.
pub(crate) type Statuses = BTreeMap<String, BTreeSet<u16>>;

const NUMBERS: [(&str, u16); 18] = [
    ("BAD_REQUEST", 400),
    ("UNAUTHORIZED", 401),
    ("FORBIDDEN", 403),
    ("NOT_FOUND", 404),
    ("METHOD_NOT_ALLOWED", 405),
    ("REQUEST_TIMEOUT", 408),
    ("CONFLICT", 409),
    ("GONE", 410),
    ("PAYLOAD_TOO_LARGE", 413),
    ("URI_TOO_LONG", 414),
    ("UNSUPPORTED_MEDIA_TYPE", 415),
    ("UNPROCESSABLE_ENTITY", 422),
    ("UPGRADE_REQUIRED", 426),
    ("TOO_MANY_REQUESTS", 429),
    ("REQUEST_HEADER_FIELDS_TOO_LARGE", 431),
    ("INTERNAL_SERVER_ERROR", 500),
    ("SERVICE_UNAVAILABLE", 503),
    ("INSUFFICIENT_STORAGE", 507),
];

fn number(name: &str) -> Option<u16> {
    NUMBERS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// The word at the beginning of a text.
fn leading_word(text: &str) -> &str {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default()
}

/// The codes that a source gives beside a status: `StatusCode::GONE, "word"`, or a constant of that name.
pub(crate) fn beside_status(source: &str) -> Vec<(String, u16)> {
    let pairs = source.split("StatusCode::").skip(1).filter_map(|after| {
        let (name, rest) = after.split_once(',')?;
        let rest = rest.trim_start();
        let code = match rest.strip_prefix('"') {
            Some(literal) => literal.split('"').next()?.to_owned(),
            None => leading_word(rest).to_lowercase(),
        };
        Some((code, number(name)?))
    });
    pairs.filter(|(code, _)| is_word(code)).collect()
}

/// The codes of the bus's errors with their statuses, from the two functions that give them.
pub(crate) fn of_bus(codes: &str, statuses: &str) -> Vec<(String, u16)> {
    let codes = codes.split_once("fn code(").map_or("", |(_, body)| body);
    let codes = codes.split_once("\n    }\n").map_or(codes, |(body, _)| body);
    let statuses = statuses.split_once("fn status(").map_or("", |(_, body)| body);
    let statuses = statuses.split_once("\n}\n").map_or(statuses, |(body, _)| body);
    let codes = arms(codes, "Self::", "=> \"", |text| text.split('"').next().map(str::to_owned));
    let statuses = arms(statuses, "BusError::", "StatusCode::", |text| number(leading_word(text)));
    let with_status = |(variant, code): (String, String)| {
        let (_, status) = statuses.iter().find(|(of, _)| *of == variant)?;
        is_word(&code).then_some((code, *status))
    };
    codes.into_iter().filter_map(with_status).collect()
}

/// The variants before each value of a `match`.
fn arms<T: Clone>(
    source: &str,
    variant: &str,
    value: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Vec<(String, T)> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some((patterns, after)) = rest.split_once(value) {
        let Some(given) = read(after) else {
            rest = after;
            continue;
        };
        // An arm with a `match` of its own is of another error.
        let patterns = patterns.rsplit_once("match error {").map_or(patterns, |(_, inner)| inner);
        // An arm before it may have a value of another kind.
        let earlier = patterns.rsplit_once("=>").filter(|_| value.starts_with("=>"));
        let patterns = earlier.map_or(patterns, |(_, own)| own);
        let names = patterns.split(variant).skip(1).map(leading_word);
        found.extend(names.map(|name| (name.to_owned(), given.clone())));
        rest = after;
    }
    found
}

/// The statuses in the protocol's table. As many numbers as codes belong to them one by one.
pub(crate) fn of_protocol(document: &str) -> Statuses {
    let table = document.split_once("## Error codes").map_or("", |(_, table)| table);
    let mut found = Statuses::new();
    for line in table.lines().filter_map(|line| line.strip_prefix('|')) {
        let mut cells = line.split('|');
        let (Some(codes), Some(numbers)) = (cells.next(), cells.next()) else { continue };
        let codes: Vec<&str> = codes.split('`').skip(1).step_by(2).collect();
        let numbers: Vec<u16> = numbers.split(',').filter_map(|number| number.trim().parse().ok()).collect();
        let one_by_one = codes.len() > 1 && codes.len() == numbers.len();
        for (at, code) in codes.into_iter().enumerate() {
            let own = numbers.iter().enumerate().filter(|(of, _)| !one_by_one || *of == at);
            found.entry(code.to_owned()).or_default().extend(own.map(|(_, number)| *number));
        }
    }
    found
}

/// The rows of the table of statuses: its numbers, and the words in backticks.
fn rows(document: &str) -> Vec<(BTreeSet<u16>, Vec<&str>)> {
    let table = document.split_once("| status | `error` |").map_or("", |(_, table)| table);
    let lines = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let row = |line: &'_ str| {
        let numbers = line.split('|').nth(1).unwrap_or_default().split(',');
        numbers.filter_map(|number| number.trim().parse().ok()).collect::<BTreeSet<u16>>()
    };
    let rows = lines.map(|line| (row(line), line.split('`').skip(1).step_by(2).collect()));
    rows.filter(|(numbers, _)| !numbers.is_empty()).collect()
}

/// Reports statuses that one of the three does not have.
pub(crate) fn compare(given: &[(String, u16)], protocol: &Statuses, routes: &str, report: &mut Report) {
    for (code, status) in given {
        if protocol.get(code).is_some_and(|known| !known.contains(status)) {
            report.fail(format!("{}: `{code}` can have the status {status}", super::codes::DOCUMENT));
        }
    }
    let rows = rows(routes);
    for (numbers, codes) in &rows {
        for code in
            codes.iter().filter(|code| protocol.get(**code).is_some_and(|known| known.is_disjoint(numbers)))
        {
            report.fail(format!("{ROUTES}: `{code}` does not have the status {numbers:?}"));
        }
    }
    for (code, known) in protocol {
        let in_rows = || rows.iter().filter(|(_, codes)| codes.contains(&code.as_str()));
        for status in known.iter().filter(|_| in_rows().next().is_some()) {
            if !in_rows().any(|(numbers, _)| numbers.contains(status)) {
                report.fail(format!("{ROUTES}: `{code}` can have the status {status}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_read_from_code_and_documents() {
        let source =
            "new(StatusCode::NOT_FOUND, \"not_c\", x); (StatusCode::GONE,\n NO_D, y); StatusCode::OK, z";
        assert_eq!(beside_status(source), [("not_c".to_owned(), 404), ("no_d".to_owned(), 410)]);
        let codes = "fn code(&self) {\n match self {\n Self::A { .. } | Self::B => \"a_b\",\n Self::C(_) => \"c\",\n Self::D(d) => d.code(),\n }\n    }\n fn other() {}";
        let statuses = "fn status(error) {\n match error {\n BusError::A { .. } | BusError::B => StatusCode::CONFLICT,\n BusError::D(error) => match error {\n DeliveryError::E => StatusCode::GONE,\n },\n BusError::C(_) => {\n StatusCode::NOT_FOUND\n }\n }\n}\n";
        assert_eq!(
            of_bus(codes, statuses),
            [("a_b".to_owned(), 409), ("a_b".to_owned(), 409), ("c".to_owned(), 404)]
        );
        let table = of_protocol(
            "## Error codes\n| `a`, `b` | 400, 404 | x |\n| `c`, `d`, `e` | 500 |\n| `f` | 429, 413 |\n",
        );
        let of = |code: &str| table.get(code).unwrap().iter().copied().collect::<Vec<_>>();
        assert_eq!((of("a"), of("b"), of("d"), of("f")), (vec![400], vec![404], vec![500], vec![413, 429]));
    }

    #[test]
    fn every_difference_is_reported() {
        let protocol = of_protocol("## Error codes\n| `a_b` | 409 |\n| `limited` | 429, 413 |\n");
        let routes = "| status | `error` |\n| --- | --- |\n| 404 | `a_b` |\n| 429 | `limited`, with `retry-after` |\n\n| 500 | `a_b` |\n";
        let mut report = Report::default();
        compare(&[("a_b".to_owned(), 410)], &protocol, routes, &mut report);
        assert_eq!(
            report.failures(),
            [
                "docs/protocol.md: `a_b` can have the status 410",
                "docs/http.md: `a_b` does not have the status {404}",
                "docs/http.md: `a_b` can have the status 409",
                "docs/http.md: `limited` can have the status 413",
            ]
        );
    }
}
