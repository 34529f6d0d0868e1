//! Taking locks after a panic.

use std::sync::PoisonError;

/// Takes what a lock guards, also after a thread panicked while it held the lock.
///
/// Our critical sections keep their data consistent at every step, so a panic in one thread is no reason for
/// the others to panic too. Failures that must stop the writer have a flag of their own in the log.
pub trait IgnorePoison<T> {
    /// The guard, whether or not the lock is poisoned.
    fn ignore_poison(self) -> T;
}

impl<T> IgnorePoison<T> for Result<T, PoisonError<T>> {
    fn ignore_poison(self) -> T {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_poisoned_lock_gives_its_value() {
        let lock = Mutex::new(7);
        let panicked = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _guard = lock.lock();
                    panic!("while holding the lock");
                })
                .join()
        });
        assert!(panicked.is_err() && lock.is_poisoned());
        assert_eq!(*lock.lock().ignore_poison(), 7);
    }
}
