//! Identifiers from names in JSON: ASCII, valid in both languages, and unique.

use std::collections::BTreeSet;

/// The longest identifier. Longer ones are cut, and get a number if they are no longer unique.
const IDENTIFIER_MAX: usize = 60;

/// Types that generated code writes without a path.
const TAKEN: [&str; 22] = [
    "Option",
    "Some",
    "None",
    "Ok",
    "Err",
    "String",
    "Vec",
    "Box",
    "BTreeMap",
    "Serialize",
    "Deserialize",
    "Debug",
    "Clone",
    "PartialEq",
    "Self",
    "Record",
    "Readonly",
    "Array",
    "Object",
    "Topic",
    "Payloads",
    "Date",
];

/// The identifiers of one scope.
#[derive(Debug, Clone)]
pub(super) struct TypeNames(BTreeSet<String>);

impl Default for TypeNames {
    fn default() -> Self {
        Self(TAKEN.iter().map(|name| (*name).to_owned()).collect())
    }
}

impl TypeNames {
    /// A scope without names.
    pub(super) fn empty() -> Self {
        Self(BTreeSet::new())
    }

    /// The name, or the name with the first number that is free.
    pub(super) fn take(&mut self, wish: &str) -> String {
        let mut name = wish.to_owned();
        let mut number = 2_u64;
        while !self.0.insert(name.clone()) {
            // Without `_`, the second `v1` would be `v12`.
            let between = if wish.ends_with(|last: char| last.is_ascii_digit()) { "_" } else { "" };
            name = format!("{wish}{between}{number}");
            number += 1;
        }
        name
    }
}

/// Splits a name into words: at every character that is not a letter or digit, before a capital that follows
/// a small letter, and before the last capital of a run that a small letter follows. A character that is not
/// ASCII becomes its number.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let falls = before.is_ascii_uppercase() && chars.peek().is_some_and(char::is_ascii_lowercase);
        let begins = char.is_ascii_uppercase() && (!before.is_ascii_uppercase() || falls);
        if begins || !char.is_ascii_alphanumeric() {
            words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
        }
        if char.is_ascii_alphanumeric() {
            word.push(char.to_ascii_lowercase());
        } else if !char.is_ascii() {
            words.push(number(char));
        }
        before = char;
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    if words.is_empty() {
        // The numbers of the characters, so that the identifiers of `+` and `-` do not depend on their order.
        words.extend(text.chars().map(number));
    }
    if words.is_empty() {
        words.push("empty".to_owned());
    }
    words
}

fn number(char: char) -> String {
    format!("u{:04x}", u32::from(char))
}

/// `OrdersPlaced`.
pub(super) fn pascal(words: &[String]) -> String {
    let mut name = String::new();
    for word in words {
        let mut chars = word.chars();
        // Separates digits that would run together.
        let digits = name.ends_with(|last: char| last.is_ascii_digit())
            && word.starts_with(|first: char| first.is_ascii_digit());
        if digits {
            name.push('N');
        }
        name.extend(chars.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(chars.as_str());
    }
    cut(led(name, "N"))
}

/// `orders_placed`.
pub(super) fn snake(words: &[String]) -> String {
    cut(led(words.join("_"), "n"))
}

/// `ORDERS_PLACED`.
pub(super) fn upper(words: &[String]) -> String {
    snake(words).to_ascii_uppercase()
}

/// `ordersPlaced`.
pub(super) fn camel(words: &[String]) -> String {
    let mut chars = pascal(words).chars().collect::<Vec<_>>();
    if let Some(first) = chars.first_mut() {
        first.make_ascii_lowercase();
    }
    chars.into_iter().collect()
}

/// Puts a letter before a leading digit.
fn led(name: String, with: &str) -> String {
    if name.starts_with(|first: char| first.is_ascii_digit()) { format!("{with}{name}") } else { name }
}

fn cut(mut name: String) -> String {
    name.truncate(IDENTIFIER_MAX);
    name.truncate(name.trim_end_matches('_').len());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_identifiers() {
        let check = |text: &str, pascal_case: &str, snake_case: &str| {
            assert_eq!((pascal(&words(text)), snake(&words(text))), (pascal_case.into(), snake_case.into()));
        };
        check("orders.placed", "OrdersPlaced", "orders_placed");
        check("lastSeen_ts", "LastSeenTs", "last_seen_ts");
        check("HTTPStatus", "HttpStatus", "http_status");
        check("GET", "Get", "get");
        check("2nd", "N2nd", "n2nd");
        check("a1-2", "A1N2", "a1_2");
        check("gr\u{f6}\u{df}e", "GrU00f6U00dfE", "gr_u00f6_u00df_e");
        check("", "Empty", "empty");
        check("+", "U002b", "u002b");
        assert_eq!(camel(&words("orders.placed")), "ordersPlaced");
        assert_eq!(snake(&words(&"x".repeat(200))).len(), IDENTIFIER_MAX);
    }

    #[test]
    fn no_name_is_given_twice() {
        let mut names = TypeNames::default();
        assert_eq!(names.take("Order"), "Order");
        assert_eq!(names.take("Order"), "Order2");
        assert_eq!(names.take("Order2"), "Order2_2");
        assert_eq!(names.take("Option"), "Option2");
    }
}
