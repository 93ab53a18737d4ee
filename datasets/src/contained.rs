//! How does a panic over the bytes of a file become an error?
//!
//! Decoders of others index and unwrap what a file says. Such a panic says that the file is
//! malformed, so it ends the load with one line, and prints nothing.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Once,
};

thread_local! {
    /// Whether this thread's panics are errors.
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// What `work` returns, or what its panic says. What it has changed is not to be used again after a
/// panic.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let told = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_CONTAINED.get() {
                told(panic);
            }
        }));
    });
    let was = IS_CONTAINED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    IS_CONTAINED.set(was);
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
        let problem = contained(|| empty[std::hint::black_box(1)]).unwrap_err();
        assert_eq!(problem, "index out of bounds: the len is 0 but the index is 1");
        assert_eq!(contained(|| 7), Ok(7));
        assert!(!IS_CONTAINED.get());
    }
}
