//! Tests what this crate promises, one file per promise.

mod direct_io_moves_exactly_the_bytes;
mod handed_over_at_once;
mod opening_a_device_is_honest;
mod queues_stay_bounded;
mod simulated_devices_are_repeatable;
mod support;
mod the_page_cache_stays_empty;
mod watches_wake_a_blocked_reap;
