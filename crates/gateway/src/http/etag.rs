//! Entity tags (RFC 9110, 8.8.3 and 13.1.2).

/// The strong tag of a body: a hash of its bytes.
pub(super) fn of(body: &[u8]) -> String {
    format!("\"{:032x}\"", xxhash_rust::xxh3::xxh3_128(body))
}

/// Whether `If-None-Match` names a tag, or is `*`. The comparison is weak, as the RFC demands: `W/"a"` equals
/// `"a"`.
pub(super) fn matches<'a>(values: impl Iterator<Item = &'a str>, tag: &str) -> bool {
    values.into_iter().any(|value| value.trim() == "*" || tags(value).any(|given| given == tag))
}

/// The tags of a list, without their `W/`. Text that is not a tag ends the list.
fn tags(list: &str) -> impl Iterator<Item = &str> {
    let mut rest = list;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let opaque = rest.strip_prefix("W/").unwrap_or(rest);
        let end = opaque.strip_prefix('"')?.find('"')? + 2;
        let (tag, after) = opaque.split_at_checked(end)?;
        rest = after;
        Some(tag)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_weak_tags_and_stars_match() {
        let has = |values: &[&str]| matches(values.iter().copied(), "\"a\"");
        for values in [
            &["\"a\""][..],
            &["W/\"a\""],
            &["\"b\", \"a\""],
            &["\"b\",W/\"a\" , \"c\""],
            &["\"x,y\", \"a\""],
            &["*"],
            &[" * "],
            &["\"b\"", "\"a\""],
            &[",, \"a\""],
        ] {
            assert!(has(values), "{values:?}");
        }
        for values in [
            &[][..],
            &[""],
            &["a"],
            &["\"b\""],
            &["\"a"],
            &["\"A\""],
            &["w/\"a\""],
            &["\"b\" * \"a\"x"],
            &["**"],
            &["\"*\""],
        ] {
            assert!(!has(values), "{values:?}");
        }
    }

    #[test]
    fn a_tag_is_of_the_bytes() {
        assert_eq!(of(b"x"), of(b"x"));
        assert_ne!(of(b"x"), of(b"y"));
        assert_eq!(of(b"").len(), 34);
    }
}
