//! Tests what the command line promises to its users, one file per promise, by running the real
//! program.

mod a_trace_runs_again;
mod acknowledged_writes_survive_their_node;
mod bad_words_and_files_end_in_one_clear_message;
mod data_is_private;
mod devices_of_this_host;
#[path = "../chaos/disk.rs"]
mod disk;
mod figures_of_papers;
mod files_are_loaded_as_written;
mod filters_run_near_and_far;
mod full_disks_are_named;
mod kernels_are_measured_beside_a_copy;
mod members_are_recorded;
mod more_clients_than_fit_are_told_so;
mod nodes_are_rebuilt;
mod nodes_know_who_they_are;
mod placements_are_compared_with_the_best;
mod queries_survive_lost_nodes;
mod queries_survive_unresponsive_nodes;
mod reads_near_and_far_are_measured;
mod refreshes_run_beside_queries;
mod rows_are_changed;
mod shells;
mod strangers_delay_nobody;
mod support;
mod tables_are_replaced_under_shells;
mod the_cluster_survives_what_users_do_to_it;
mod two_commands_and_an_answer;
mod updates_of_many_processes_count;
mod views_change_with_their_rows;
