//! Numbers and times as people read them.

use promethean_model::Moment;

/// A count with separators, as in `1,234,567`.
pub(crate) fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size, as in `1.5 MiB`.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            return match unit {
                "B" => format!("{bytes} B"),
                _ => format!("{size:.1} {unit}"),
            };
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

/// A time in milliseconds since 1970, as a date.
pub(crate) fn time_text(ms: i64) -> String {
    Moment::from_ms(ms).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count_text), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([5, 1_536, 5 << 30].map(bytes_text), ["5 B", "1.5 KiB", "5.0 GiB"]);
    }
}
