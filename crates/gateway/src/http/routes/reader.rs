//! Who reads an answer that takes long.

use promethean_delivery::Subject;

use crate::app::App;
use crate::auth::{Access, AuthSession};

/// A client, and what it reads.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) session: Option<AuthSession>,
    pub(super) subject: Subject,
}

impl Reader {
    /// Whether its token was not taken out, and still allows it.
    pub(super) async fn may_read_on(&mut self) -> bool {
        let Some(session) = &mut self.session else { return false };
        let known = session.look().await.is_ok();
        known && session.identity.may(&Access::Subscribe(&self.subject, None))
    }

    /// Whether its token has expired. What has an end is read to its end nevertheless.
    pub(super) fn is_expired(&self, app: &App) -> bool {
        let expires_ms = self.session.as_ref().and_then(|session| session.identity.expires_ms);
        expires_ms.is_some_and(|expires_ms| app.clock.wall_ms() >= expires_ms)
    }
}
