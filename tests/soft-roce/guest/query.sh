# Does TPC-H query 6 give the right answer over the wire, by fetching pages and by processing in the nodes?
. /guest/lib.sh
. /guest/cluster.sh
two_devices || fail 'no two RDMA devices'
export RACKSCAN_VERBS_DEVICE=rxe2
case $WIRE in verbs) network=v1 ;; *) network=lo ;; esac

cluster_file "$(listen rxe1 10.2.0.1 7001)" "$(listen rxe1 10.2.0.1 7002)"
start_node 0
start_node 1
tpch_q06 "$network"
stop_nodes
kernel_is_well
