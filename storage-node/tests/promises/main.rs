//! Tests what a storage node promises, one file per promise.
//!
//! Method: a node runs in this process over real device files; a raw fabric client, which knows
//! only the messages, sends requests to it.

mod a_scan_tells_its_reads_if_asked;
mod bad_pages_are_named_and_others_served;
mod bridges_are_made_as_configured;
mod budgets_and_queues_hold;
mod damaged_logs_come_back;
mod devices_of_others_are_refused;
mod fetch_returns_the_stored_pages;
mod frequent_clients_get_rings;
mod garbage_does_not_reach_the_participant;
mod key_filters_are_pulled_once;
mod keys_leave_with_their_clients;
mod keys_outlive_a_crash;
mod logs_are_copied;
mod lost_clients_leave_nothing;
mod many_call_at_once;
mod many_clients;
mod memory_of_requests_is_counted;
mod misuse_is_refused;
mod nodes_sleep_and_wake;
mod over_quota_scans_are_bounced;
mod pages_are_cached_and_never_stale;
mod parity_is_reserved_and_relayed;
mod places_take_only_their_bytes;
mod process_equals_a_local_scan;
mod protected_tables_need_their_maps;
mod requests_come_in_boxes;
mod rows_are_followed;
mod rows_of_lost_nodes_are_followed;
mod scratch_is_set_aside;
mod space_returns_at_once;
mod stale_replicas_are_refused;
mod stripes_are_relayed;
mod support;
mod tables_are_whole_or_absent;
mod tables_succeed_one_another;
mod transactions_are_read_whole;
mod transactions_end_without_their_client;
mod transactions_stop_at_a_full_log;
mod withheld_rows_stay_out;
