//! What time asks for.

use std::time::Duration;

use tokio::time::Instant;

use super::{Core, IDS_MAX};
use crate::effects::LockEffects;
use crate::error::ClientError;
use crate::member::Member;
use crate::member::table::RowId;

/// Leases are looked at this often; a lease lasts a second or more.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Core {
    /// Does what time asks for: gives overdue publishes up, extends leases, subscribes again.
    pub(crate) fn tick(&mut self, now: Instant, effects: &mut LockEffects) {
        if self.looked_at.is_some_and(|at| now < at + LOOK_EVERY) {
            return;
        }
        self.looked_at = Some(now);
        if self.outbox.pending() > 0 {
            let away = (!self.is_open()).then(|| {
                let unknown = || ClientError::new("unreachable", "there is no connection yet");
                self.failure.clone().unwrap_or_else(unknown)
            });
            self.outbox.sweep(now, away.as_ref(), effects);
        }
        if !self.is_open() {
            return;
        }
        let is_due = |member: &Member| member.retry_at.is_some_and(|at| at <= now);
        let retries: Vec<u64> = self.members.iter().filter(|(_, m)| is_due(m)).map(|(id, _)| *id).collect();
        retries.into_iter().for_each(|id| self.subscribe(id));
        let due: Vec<_> = self.members.iter().map(|(id, member)| (*id, member.due(now))).collect();
        for (id, rows) in due {
            for rows in rows.chunks(IDS_MAX) {
                let lasts = |row: &RowId| Some(self.members.get(&id)?.table.row(*row)?.lasts);
                let by = rows.iter().find_map(lasts).unwrap_or_default();
                self.extend(id, rows.to_vec(), by, None, now);
            }
        }
    }

    /// When to look at the time again, if anything waits for it.
    pub(crate) fn next_look(&self, now: Instant) -> Option<Instant> {
        let is_busy = self.outbox.pending() > 0
            || self.members.values().any(|member| member.retry_at.is_some() || member.table.len() > 0);
        let look = is_busy.then_some(now + LOOK_EVERY);
        // A pause that is over lasts until the next frame is sent, for which the socket may have no room yet.
        let pause = self.outbox.paused_until().filter(|until| *until > now);
        look.into_iter().chain(pause).min()
    }
}
