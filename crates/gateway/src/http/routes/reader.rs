//! Who reads an answer that takes long.

use promethean_delivery::Subject;

use crate::app::App;
use crate::auth::{Access, Standing};

/// A client, and what it reads.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) standing: Option<Standing>,
    pub(super) subject: Subject,
}

impl Reader {
    /// Whether its token was not taken out, and still allows it.
    pub(super) async fn may_read_on(&mut self) -> bool {
        let Some(standing) = &mut self.standing else { return false };
        let known = standing.look().await.is_ok();
        known && standing.identity.may(&Access::Subscribe(&self.subject, None))
    }

    /// Whether its token has expired. What has an end is read to its end nevertheless.
    pub(super) fn is_expired(&self, app: &App) -> bool {
        let expires_ms = self.standing.as_ref().and_then(|standing| standing.identity.expires_ms);
        expires_ms.is_some_and(|expires_ms| app.clock.wall_ms() >= expires_ms)
    }
}
