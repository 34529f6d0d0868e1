//! The names that members gave themselves: a second member of a name fences the first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use promethean_delivery::Subject;
use promethean_model::{GroupName, IgnorePoison, MemberId};

use super::Membership;

type NameInGroup = (GroupName, Subject, MemberId);

/// The members that have a name, by group and name.
#[derive(Debug, Default)]
pub(crate) struct MemberNames(Mutex<HashMap<NameInGroup, Weak<Membership>>>);

impl MemberNames {
    /// Gives a member its name. Returns the member that had the name before.
    pub(crate) fn take(&self, membership: &Arc<Membership>) -> Option<Arc<Membership>> {
        let name = membership.name_in_group()?;
        self.lock().insert(name, Arc::downgrade(membership))?.upgrade()
    }

    /// Frees the name of a member that has left, unless another member has it now.
    pub(crate) fn free(&self, membership: &Arc<Membership>) {
        let Some(name) = membership.name_in_group() else { return };
        let mut names = self.lock();
        if names.get(&name).is_some_and(|has| std::ptr::eq(has.as_ptr(), Arc::as_ptr(membership))) {
            names.remove(&name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NameInGroup, Weak<Membership>>> {
        // Each change is one operation, so a panic elsewhere leaves the map whole.
        self.0.lock().ignore_poison()
    }
}
