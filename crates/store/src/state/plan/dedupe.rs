//! Dedupe marks.

use super::super::keys::dedupe;
use super::super::{Space, Staged, View};
use crate::port::{CommitError, DedupeForget, DedupeMark};

pub(super) fn apply(staged: &mut Staged<'_>, mark: &DedupeMark) -> Result<(), CommitError> {
    let name = dedupe::name(&mark.scope, &mark.id);
    let key = dedupe::key(&name);
    let stored = staged.get(Space::Dedupe, &key)?.map(|value| dedupe::decode(&value)).transpose()?;
    if let (Some(expires_at), Some(now)) = (stored, mark.unless_seen_at)
        && expires_at > now
    {
        return Err(CommitError::AlreadySeen { scope: mark.scope.clone(), id: mark.id.clone() });
    }
    if let Some(expires_at) = stored {
        staged.delete(Space::Dedupe, dedupe::expiry_key(expires_at, &name));
    }
    staged.put(Space::Dedupe, dedupe::expiry_key(mark.expires_at, &name), Vec::new());
    staged.put(Space::Dedupe, key, dedupe::value(mark.expires_at));
    Ok(())
}

pub(super) fn forget(staged: &mut Staged<'_>, mark: &DedupeForget) -> Result<(), CommitError> {
    let name = dedupe::name(&mark.scope, &mark.id);
    let key = dedupe::key(&name);
    if let Some(value) = staged.get(Space::Dedupe, &key)? {
        staged.delete(Space::Dedupe, dedupe::expiry_key(dedupe::decode(&value)?, &name));
        staged.delete(Space::Dedupe, key);
    }
    Ok(())
}
