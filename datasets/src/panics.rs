//! Turns a panic of a file decoder into an error.
//!
//! Third-party decoders index and unwrap by numbers that a file contains. Such a panic means that
//! the file is malformed, so the load ends with one line of error, and no panic message is printed.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Once,
};

thread_local! {
    /// Whether panics of this thread become errors.
    static CATCHES_PANICS: Cell<bool> = const { Cell::new(false) };
}

/// Returns the result of `work`, or the message of its panic. After a panic, state that `work` has
/// changed must not be used.
pub(crate) fn catch_panics<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous_hook = take_hook();
        set_hook(Box::new(move |panic| {
            if !CATCHES_PANICS.get() {
                previous_hook(panic);
            }
        }));
    });
    let was = CATCHES_PANICS.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    CATCHES_PANICS.set(was);
    outcome.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        text.unwrap_or("its reader stopped unexpectedly").to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_one_line_and_others_go_on_as_before() {
        let empty: Vec<u8> = Vec::new();
        let problem = catch_panics(|| empty[std::hint::black_box(1)]).unwrap_err();
        assert_eq!(problem, "index out of bounds: the len is 0 but the index is 1");
        assert_eq!(catch_panics(|| 7), Ok(7));
        assert!(!CATCHES_PANICS.get());
    }
}
