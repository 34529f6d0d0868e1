//! Options of an embedded store.

use promethean_model::Durability;

const MIB: u64 = 1 << 20;

/// Sizes and bounds of an embedded store. `Default` suits a server.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Options of the log.
    pub log: promethean_log::LogOptions,
    /// The durability of batches that name none. Default: `fsync`.
    pub durability: Durability,
    /// Bytes of batches handed to the log and not yet durable; further commits wait. At most the log's `queue_bytes`, so
    /// that handing over does not block a thread. Default: 8 MiB. Minimum: 64 KiB.
    pub inflight_bytes_max: u32,
    /// Blocks of state kept in memory. Default: 16 MiB.
    pub state_cache_bytes: u64,
    /// Write buffer of each of the four state spaces. Default: 8 MiB. Minimum: 1 MiB.
    pub state_buffer_bytes: u64,
    /// Table files that the state engine keeps open. Default: 256. Minimum: 10.
    pub state_open_files: usize,
    /// Journal of the state engine. Default: 64 MiB, which is also its minimum.
    pub state_journal_bytes: u64,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            log: promethean_log::LogOptions::default(),
            durability: Durability::Fsync,
            inflight_bytes_max: 8 << 20,
            state_cache_bytes: 16 * MIB,
            state_buffer_bytes: 8 * MIB,
            state_open_files: 256,
            state_journal_bytes: 64 * MIB,
        }
    }
}

impl EmbeddedOptions {
    /// These options with every value within its bounds.
    pub(super) fn clamped(mut self) -> Self {
        let queue = u32::try_from(self.log.queue_bytes).unwrap_or(u32::MAX);
        self.inflight_bytes_max = self.inflight_bytes_max.min(queue).max(64 << 10);
        self.state_buffer_bytes = self.state_buffer_bytes.max(MIB);
        self.state_open_files = self.state_open_files.max(10);
        self.state_journal_bytes = self.state_journal_bytes.max(64 * MIB);
        self
    }
}
