//! Topic settings.

use super::super::keys::settings;
use super::super::{Space, Staged};
use crate::port::{CommitError, SettingsOp};

pub(super) fn apply(staged: &mut Staged<'_>, op: &SettingsOp) -> Result<(), CommitError> {
    match op {
        SettingsOp::Put(topic, value) => {
            staged.put(Space::Meta, settings::key(topic), settings::value(value)?);
        }
        SettingsOp::Delete(topic) => staged.delete(Space::Meta, settings::key(topic)),
    }
    Ok(())
}
