//! The memory of the binary: mimalloc, told to give back soon what is not used.
//!
//! Events are allocated by the task that reads them and freed by another, where the C library's allocator is slow. The only
//! crate with unsafe code: docs/adr/0006 says why.

use std::ffi::{c_int, c_long};

pub use mimalloc::MiMalloc as Allocator;

/// `mi_option_purge_delay` in mimalloc's `mi_option_t`; the bindings do not name it.
const PURGE_DELAY: c_int = 15;
/// Long enough that memory in use again and again stays, short enough that a burst of events leaves none behind.
const PURGE_DELAY_MS: c_long = 10;

/// Gives freed memory back to the system after 10 ms instead of a second, unless the environment says otherwise
/// (`MIMALLOC_PURGE_DELAY`). To be called first: memory freed earlier waits the longer time.
pub fn give_back_soon() {
    #[expect(unsafe_code, reason = "a C function")]
    // SAFETY: takes two numbers, looks at nothing but mimalloc's table of options, and the number is within that table.
    unsafe {
        libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another version of mimalloc may number its options otherwise; only the delay is a second by default.
    #[test]
    fn the_option_is_the_delay() {
        #[expect(unsafe_code, reason = "a C function")]
        // SAFETY: as above.
        let get = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(get(), 1_000);
        give_back_soon();
        assert_eq!(get(), PURGE_DELAY_MS);
    }
}
