//! Positions as people write them.

use anyhow::{Context, Result};
use promethean_client::StartFrom;
use promethean_model::{Clock, EventId, Moment, SystemClock};

/// Reads a position: `earliest`, `latest`, an offset, a date or a time ago, or the id of an event.
pub(crate) fn parse_position(text: &str) -> Result<StartFrom> {
    read(text, SystemClock::new().wall_ms())
}

fn read(text: &str, now_ms: i64) -> Result<StartFrom> {
    match text {
        "earliest" => return Ok(StartFrom::Earliest),
        "latest" => return Ok(StartFrom::Latest),
        _ => {}
    }
    if let Ok(offset) = text.parse::<u64>() {
        return Ok(StartFrom::Offset(offset));
    }
    if let Ok(id) = text.parse::<EventId>() {
        return Ok(StartFrom::AfterId(id));
    }
    let moment = Moment::parse(text, now_ms);
    moment.map(|moment| StartFrom::Ts(moment.ms())).with_context(|| {
        format!("`{text}` is no position; write earliest, latest, an offset, a date, \"5m ago\", or the id of an event")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_have_their_forms() {
        assert_eq!(read("earliest", 0).unwrap(), StartFrom::Earliest);
        assert_eq!(read("17", 0).unwrap(), StartFrom::Offset(17));
        assert_eq!(read("5m ago", 300_000).unwrap(), StartFrom::Ts(0));
        assert_eq!(read("1970-01-01T00:00:01Z", 0).unwrap(), StartFrom::Ts(1_000));
        let id = "0b7a34f2-9a53-4f8e-8f0a-3a1c0c7d5e11";
        assert_eq!(read(id, 0).unwrap(), StartFrom::AfterId(id.parse().unwrap()));
        assert!(read("yesterday", 0).unwrap_err().to_string().contains("no position"));
    }
}
