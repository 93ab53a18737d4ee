//! Tests what the laboratory promises to its users, one file per promise, on a real node.

mod a_node_that_ends_leaves_what_was_measured;
mod bytes_move_side_by_side;
mod devices_are_measured_and_spared;
mod filters_count_the_same_rows_everywhere;
mod near_and_far_bring_the_same_bytes;
mod processor_time_misses_no_thread;
mod support;
mod turns_of_near_and_far_are_compared;
