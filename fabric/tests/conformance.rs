//! Tests that every wire keeps the same promises. Method: each promise is a function over a wire;
//! the table below runs all of them on each. A new wire is a new line in `TestWire` and in the
//! table.

#[cfg(feature = "verbs")]
#[path = "conformance/devices.rs"]
mod devices;
#[path = "conformance/endings.rs"]
mod endings;
#[path = "conformance/handshake.rs"]
mod handshake;
#[path = "conformance/messages.rs"]
mod messages;
#[path = "conformance/order.rs"]
mod order;
#[path = "conformance/pair.rs"]
mod pair;
#[path = "conformance/posts.rs"]
mod posts;
#[path = "conformance/refusal.rs"]
mod refusal;
#[path = "conformance/strangers.rs"]
mod strangers;
#[path = "conformance/transfer.rs"]
mod transfer;

macro_rules! promises {
    ($wire:ident, $value:expr, $($group:ident::$promise:ident),+ $(,)?) => {
        mod $wire {
            $(
                #[test]
                fn $promise() {
                    crate::$group::$promise($value);
                }
            )+
        }
    };
}

macro_rules! on_every_wire {
    ($($promises:tt)+) => {
        promises!(shm, crate::pair::TestWire::Shm, $($promises)+);
        promises!(tcp, crate::pair::TestWire::Tcp, $($promises)+);
        #[cfg(feature = "verbs")]
        promises!(verbs, crate::pair::TestWire::Verbs, $($promises)+);
        mod sim {
            on_some_seeds!($($promises)+);
        }
    };
}

/// On wires where our own code writes the memory. An adapter chooses the order of its writes
/// itself.
macro_rules! on_every_wire_of_processors {
    ($($promises:tt)+) => {
        mod processors {
            promises!(shm, crate::pair::TestWire::Shm, $($promises)+);
            promises!(tcp, crate::pair::TestWire::Tcp, $($promises)+);
            mod sim {
                on_some_seeds!($($promises)+);
            }
        }
    };
}

/// On wires whose handshake runs over a socket.
macro_rules! on_every_wire_with_sockets {
    ($($promises:tt)+) => {
        mod sockets {
            promises!(shm, crate::pair::TestWire::Shm, $($promises)+);
            promises!(tcp, crate::pair::TestWire::Tcp, $($promises)+);
            #[cfg(feature = "verbs")]
            promises!(verbs, crate::pair::TestWire::Verbs, $($promises)+);
        }
    };
}

/// On the simulated wire each promise must hold for every seed. Here it is run with a few random
/// ones.
macro_rules! on_some_seeds {
    ($($group:ident::$promise:ident),+ $(,)?) => {
        $(
            #[test]
            fn $promise() {
                let promise = |seed: rackscan_fabric::sim::Seed| {
                    crate::$group::$promise(crate::pair::TestWire::Sim(seed.number()));
                };
                rackscan_fabric::sim::Seed::each(4, promise).expect("a seed");
            }
        )+
    };
}

on_every_wire! {
    transfer::writes_and_reads_of_every_length_and_alignment_arrive_unchanged,
    transfer::a_write_of_plain_bytes_takes_them_at_post,
    transfer::atomics_find_and_change_the_word,
    transfer::concurrent_atomics_lose_no_update,
    transfer::many_connections_and_threads_do_not_disturb_each_other,
    transfer::a_peer_that_does_nothing_is_read_and_written,
    transfer::counters_count_what_was_done,
    transfer::a_mapped_remote_region_is_the_peers_memory,
    messages::a_message_is_seen_after_the_bytes_written_before_it,
    messages::messages_of_every_length_arrive_in_order,
    messages::messages_out_of_registered_memory_arrive_in_order,
    messages::a_batch_is_executed_in_order_and_reported_completely,
    messages::an_immediate_is_seen_after_its_bytes,
    messages::completions_come_in_the_order_of_posting,
    messages::a_full_queue_is_an_error_with_numbers_and_drains,
    messages::both_sides_may_send_more_than_fits_in_between,
    messages::a_sleeper_is_woken_however_the_race_goes,
    messages::one_reactor_sleeps_on_many_connections,
    messages::an_owner_that_is_woken_by_one_connection_polls_the_memory_of_the_others_and_misses_nothing,
    order::a_read_does_not_see_what_was_posted_after_it,
    order::a_message_behind_a_read_is_seen_after_the_read_has_taken_its_bytes,
    order::reads_of_both_sides_and_operations_behind_them_do_not_block_each_other,
    order::operations_posted_behind_a_read_are_sent_by_closing,
    refusal::an_unknown_key_is_refused_and_harms_nothing,
    refusal::an_access_beyond_the_region_is_refused_and_harms_nothing,
    refusal::an_access_that_was_not_granted_is_refused_and_harms_nothing,
    refusal::a_deregistered_region_is_refused,
    refusal::a_key_of_one_connection_opens_nothing_on_another,
    refusal::a_malformed_operation_is_never_sent,
    refusal::registrations_have_a_limit_and_leave_nothing_behind,
    endings::a_closed_connection_is_an_orderly_ending_after_all_messages,
    endings::operations_in_flight_when_the_peer_closes_fail_as_orderly,
    endings::a_listener_that_goes_leaves_its_connections,
    endings::a_caller_learns_that_its_listener_is_gone,
    endings::a_lost_peer_leaves_no_registration,
    endings::a_killed_peer_is_noticed_by_a_sleeper,
    endings::a_killed_peer_is_noticed_by_an_owner_that_only_polls_memory,
    endings::a_killed_peer_is_noticed_by_a_poller_and_operations_in_flight_fail,
    endings::a_message_survives_its_sender,
    endings::closing_leaves_no_registration_and_no_descriptor,
    posts::messages_of_every_length_arrive_in_their_boxes_and_are_answered_there,
    posts::a_sleeper_is_woken_by_a_message_in_a_box_however_the_race_goes,
    posts::a_reactor_that_sleeps_on_many_connections_is_woken_by_a_write_into_a_box,
    posts::a_message_that_fits_in_no_box_is_refused_and_uses_no_number,
    posts::a_receiver_that_takes_boxes_in_turn_sees_nothing_of_the_others,
    posts::the_end_of_a_connection_ends_the_wait_for_its_boxes,
    handshake::another_cluster_key_is_refused_on_both_sides,
    handshake::a_listener_proves_who_it_is_and_another_one_is_turned_away,
    handshake::nobody_listening_is_a_refusal,
    handshake::an_address_in_use_is_refused,
}

on_every_wire_of_processors! {
    transfer::a_written_word_is_never_seen_in_part,
}

on_every_wire_with_sockets! {
    handshake::another_version_is_named_on_both_sides,
    handshake::garbage_is_turned_away_and_the_listener_goes_on,
    handshake::a_caller_that_says_nothing_delays_nobody,
    handshake::a_listener_that_says_nothing_costs_the_deadline,
    strangers::a_thousand_silent_callers_delay_nobody,
    strangers::callers_that_say_a_byte_at_a_time_delay_nobody_and_end_in_time,
    strangers::garbage_and_hang_ups_in_a_loop_delay_nobody,
}

/// The peer that is killed: does nothing unless this binary was started by `endings`.
#[test]
fn peer_in_a_process_of_its_own() {
    endings::be_the_peer();
}
