//! Dedupe marks: the work that consumers have already done.

use async_trait::async_trait;

use super::ReadError;

/// Reads of dedupe marks.
#[async_trait]
pub trait DedupeReads {
    /// Whether `id` is marked in `scope` and the mark has not expired at `now_ms`.
    async fn seen(&self, scope: &str, id: &str, now_ms: i64) -> Result<bool, ReadError>;
    /// Ids marked in `scope`, also expired ones, ordered by their bytes, at most `limit`.
    async fn marks(&self, scope: &str, limit: usize) -> Result<Vec<String>, ReadError>;
}
