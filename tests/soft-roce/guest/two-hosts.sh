# Does all of it work between two hosts? Host a runs a storage node, host b loads TPC-H into it and runs query 6.
. /guest/lib.sh
. /guest/cluster.sh
one_device || fail 'no RDMA device, or no other host'
export RACKSCAN_VERBS_DEVICE=rxe0
echo "== ok rxe0 on $card, and the other host answers"

# Other people's program first: it tells a broken wire between the guests from a broken wire of ours.
packets=$(crossed_packets "$card")
if [ "$ROLE" = a ]; then
    step send_and_receive 60 ibv_rc_pingpong -d rxe0 -g 1 -n 200
else
    for attempt in $(seq 60); do
        if timeout 20 ibv_rc_pingpong -d rxe0 -g 1 -n 200 10.3.0.1 >/tmp/pingpong.log 2>&1; then break; fi
        [ "$attempt" != 60 ] || { cat /tmp/pingpong.log; fail 'ibv_rc_pingpong between the hosts'; }
        sleep 0.3
    done
    echo '== ok send_and_receive'
fi
at_least "packets that crossed $card" "$(($(crossed_packets "$card") - packets))" 400

cluster_file "$(listen rxe0 10.3.0.1 7001)"
if [ "$ROLE" = a ]; then
    start_node 0
    # Until host b asks it to stop.
    wait "$node_process" || { tail -n 20 /tmp/node0.log; fail "the node ended with status $?"; }
    echo '== ok the node was stopped by the other host'
else
    for attempt in $(seq 100); do
        if timeout 20 rackscan cluster status >/tmp/status.log 2>&1; then break; fi
        [ "$attempt" != 100 ] || { cat /tmp/status.log; fail 'the node on the other host cannot be reached'; }
        sleep 0.5
    done
    tpch_q06 "$card"
    stop_nodes
fi
kernel_is_well
