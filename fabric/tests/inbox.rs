//! Tests that an inbox loses, duplicates, mixes and reorders nothing, whichever senders send, move,
//! stall, sleep or die. Method: each promise is a function over a wire, executed by threads and
//! processes; the table below runs all of them on each wire.

#[cfg(feature = "verbs")]
#[path = "inbox/adapters.rs"]
mod adapters;
#[path = "inbox/delivery.rs"]
mod delivery;
#[path = "inbox/endings.rs"]
mod endings;
#[path = "inbox/full.rs"]
mod full;
#[path = "inbox/sleep.rs"]
mod sleep;
#[path = "inbox/stage.rs"]
mod stage;

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
        promises!(shm, crate::stage::TestWire::Shm, $($promises)+);
        promises!(tcp, crate::stage::TestWire::Tcp, $($promises)+);
        #[cfg(feature = "verbs")]
        promises!(verbs, crate::stage::TestWire::Verbs, $($promises)+);
    };
}

on_every_wire! {
    delivery::messages_of_many_senders_in_one_ring_are_neither_lost_nor_mixed,
    delivery::the_longest_messages_pass_with_and_without_an_inbox,
    delivery::immediates_and_messages_keep_their_order,
    delivery::callers_are_distributed_to_the_inboxes_in_turn,
    delivery::a_caller_goes_where_the_fewest_are,
    delivery::a_connection_through_an_inbox_is_otherwise_like_any_other,
    full::a_full_inbox_stalls_its_senders_and_goes_on,
    full::a_full_inbox_refuses_all_of_a_message_and_takes_it_later,
    full::the_memory_is_what_was_configured,
    full::a_caller_beyond_the_limit_is_turned_away_until_a_sender_leaves,
    endings::a_sender_that_closes_leaves_after_everything_it_sent,
    endings::a_connection_that_its_receiver_drops_leaves_too,
    endings::a_message_longer_than_may_be_put_together_ends_its_sender_and_nobody_else,
    endings::a_killed_sender_wedges_nobody_and_its_space_comes_back,
    endings::an_inbox_that_is_dropped_ends_its_connections,
    sleep::no_wake_up_of_a_sleeping_receiver_is_lost,
    sleep::no_wake_up_of_a_stalled_sender_is_lost,
    sleep::a_reactor_sleeps_on_an_inbox,
}

/// Senders through an adapter have no rings of their own.
mod rings {
    macro_rules! on_every_wire_with_rings {
        ($($promises:tt)+) => {
            promises!(shm, crate::stage::TestWire::Shm, $($promises)+);
            promises!(tcp, crate::stage::TestWire::Tcp, $($promises)+);
        };
    }

    on_every_wire_with_rings! {
        delivery::a_senders_order_survives_its_moves_between_rings,
        delivery::rings_are_assigned_while_there_are_any,
        full::a_stalled_sender_that_gets_a_ring_of_its_own_goes_on_at_once,
    }
}

#[cfg(feature = "verbs")]
mod adapter {
    promises! {
        verbs, crate::stage::TestWire::Verbs,
        adapters::all_senders_of_an_adapter_share_its_queue,
        adapters::one_inbox_hears_adapters_and_rings_in_turn,
        adapters::what_had_arrived_is_heard_though_its_connection_is_gone,
        adapters::answers_go_on_while_their_room_comes_back_through_the_inbox,
        adapters::a_peer_that_fails_takes_only_itself_away,
    }
}

/// The sender that is killed: does nothing unless this binary was started by `endings`.
#[test]
fn sender_in_a_process_of_its_own() {
    endings::be_the_sender();
}
