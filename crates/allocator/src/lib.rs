//! The allocator of the binary: mimalloc, set to give unused memory back soon.
//!
//! One task allocates an event and another frees it; the C library's allocator is slow at that. This is the
//! only crate with unsafe code: docs/adr/0006 says why.

use std::ffi::{c_int, c_long};

pub use mimalloc::MiMalloc as Allocator;

/// `mi_option_purge_delay` in mimalloc's `mi_option_t`; the bindings do not name it.
const PURGE_DELAY: c_int = 15;
/// Long enough to keep memory that is used again and again, short enough to give back the memory of a burst
/// of events.
const PURGE_DELAY_MS: c_long = 10;

/// Sets the allocator to give freed memory back to the system after 10 ms instead of a second, unless the
/// environment sets `MIMALLOC_PURGE_DELAY`. Call it first: memory freed before the call waits a second.
pub fn give_back_soon() {
    #[expect(unsafe_code, reason = "a C function")]
    // SAFETY: the function takes two numbers and reads only mimalloc's table of options, and the index is in
    // that table.
    unsafe {
        libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another version of mimalloc may number its options otherwise. Only the delay is 1000 by default.
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
