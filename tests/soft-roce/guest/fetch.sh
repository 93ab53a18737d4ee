# Do pages travel over the wire from a storage node to a client, two processes on two devices?
. /guest/lib.sh
. /guest/cluster.sh
two_devices || fail 'no two RDMA devices'
export RACKSCAN_VERBS_DEVICE=rxe2
case $WIRE in verbs) network=v1 ;; *) network=lo ;; esac

cluster_file "$(listen rxe1 10.2.0.1 7001)"
start_node 0
# Values that do not compress to nothing, and their sum as awk sees it.
seq 1 100000 | awk 'BEGIN { print "id,value" } { print $1 "," ($1 * 7919) % 100003 }' >/tmp/numbers.csv
sum=$(awk -F , 'NR > 1 { n += $2 } END { printf "%.0f", n }' /tmp/numbers.csv)
step load-numbers 60 rackscan load csv /tmp/numbers.csv --table numbers --partition-by id
ask sum remote-fetch "$network" "$sum" 'SELECT sum(value) AS total FROM numbers' sql
at_least 'pages that the client fetched' "$(field pages_read /tmp/sum-remote-fetch-analyze.log)" 2
step status 30 rackscan cluster status --format json
grep -q '"registered": "yes"' /tmp/status.log || { cat /tmp/status.log; fail 'the node reads without registered buffers'; }
stop_nodes
wait "$node_process" || { tail -n 20 /tmp/node0.log; fail "the node ended with status $?"; }
kernel_is_well
