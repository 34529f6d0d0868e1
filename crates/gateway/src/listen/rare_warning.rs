//! Warnings that a client could cause any number of times.

use std::time::Duration;

use tokio::time::Instant;

/// How often the same warning is written, at most.
const EVERY: Duration = Duration::from_secs(10);

/// Says when a warning may be written, and how many were left out before it.
#[derive(Debug, Default)]
pub(crate) struct RareWarning {
    written: Option<Instant>,
    left_out: u64,
}

impl RareWarning {
    /// Counts an occurrence; the number of those since the last warning, if one may be written now.
    pub(crate) fn due(&mut self) -> Option<u64> {
        self.left_out += 1;
        if self.written.is_some_and(|written| written.elapsed() < EVERY) {
            return None;
        }
        self.written = Some(Instant::now());
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_warning_stands_for_many() {
        let mut warning = RareWarning::default();
        assert_eq!(warning.due(), Some(1));
        assert!((0..100).all(|_| warning.due().is_none()));
        tokio::time::advance(EVERY).await;
        assert_eq!((warning.due(), warning.due()), (Some(101), None));
    }
}
