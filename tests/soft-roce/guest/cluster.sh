# How does a scenario start storage nodes and ask them? Sourced after lib.sh by the scenarios that run the command.
# WIRE is the wire between client and nodes: verbs, or tcp to try a scenario without it.

# listen DEVICE ADDRESS PORT: an address of a node.
listen() {
    case $WIRE in
    verbs) echo "verbs:$1@$2:$3" ;;
    *) echo "$WIRE:$2:$3" ;;
    esac
}

# cluster_file LISTEN...: a cluster with one node for each address, in /data/cluster.toml. Its key is no secret: the guest is
# gone in a minute and has no network.
cluster_file() {
    if ! cd /data || ! mkdir -p client; then fail 'no disk at /data'; fi
    printf '%064d' 7 >cluster.key && chmod 600 cluster.key
    printf 'cluster = "soft-roce"\nkey_file = "cluster.key"\n' >cluster.toml
    node=0
    for address in "$@"; do
        mkdir -p "node$node"
        cat >>cluster.toml <<TOML

[[node]]
node = $node
data_dir = "node$node"
devices = [{ path = "node$node/device0", size = "512MiB" }]
listen = ["$address"]
memory_budget = "128MiB"
TOML
        node=$((node + 1))
    done
    export RACKSCAN_CLUSTER=/data/cluster.toml RACKSCAN_DATA=/data/client
}

# start_node N: in the background, back when it is ready.
start_node() {
    node_start=$(now)
    # The node's device is in its address; the variable is for those who call.
    env -u RACKSCAN_VERBS_DEVICE rackscan node --config /data/cluster.toml --id "$1" >"/tmp/node$1.log" 2>&1 &
    node_process=$!
    for _ in $(seq 300); do
        if grep -q 'the node is ready' "/tmp/node$1.log"; then
            echo "== ok node $1 is ready at $(sed -n 's/.* listens at //p' "/tmp/node$1.log" | tail -n 1), $(since "$node_start") s"
            return
        fi
        kill -0 "$node_process" 2>/dev/null || break
        sleep 0.1
    done
    tail -n 20 "/tmp/node$1.log"
    fail "node $1 is not ready after $(since "$node_start") s"
}

# field NAME FILE: a number of an explanation in JSON; the last one of its name is the run's total.
field() { sed -n "s/^ *\"$1\": \([0-9]*\),*\$/\1/p" "$2" | tail -n 1; }

# ask NAME PLACEMENT NETWORK_DEVICE EXPECTED QUERY COMMAND: runs the query by the placement, compares its only value with the one
# expected, and holds what the engine says about the wire against what the network device saw.
ask() {
    ask_before=$(crossed_bytes "$3")
    step "$1-$2" 60 rackscan "$6" "$5" --placement "$2" --format csv
    # Standard error is in the same file; the value is the line below the column's name.
    ask_found=$(grep -E '^-?[0-9.]+$' "/tmp/$1-$2.log" | tail -n 1)
    [ "$ask_found" = "$4" ] || { cat "/tmp/$1-$2.log"; fail "$1 by $2: found $ask_found, expected $4"; }
    echo "== ok $1 by $2 answers $ask_found"

    step "$1-$2-analyze" 60 rackscan explain "$5" --analyze --placement "$2" --format json
    ask_said=$(field wire_bytes "/tmp/$1-$2-analyze.log")
    # Raw pages travel as they lie on the disk; what a node has processed is small.
    case $2 in
    remote-fetch) ask_least=$(field disk_bytes "/tmp/$1-$2-analyze.log") ;;
    *) ask_least=100 ;;
    esac
    at_least "$1 by $2: bytes on the wire as the engine counts them" "${ask_said:-0}" "$ask_least"
    # Twice: both commands asked the nodes.
    at_least "$1 by $2: bytes that crossed $3" "$(($(crossed_bytes "$3") - ask_before))" "$((2 * ask_said))"
    for placement in local remote-fetch remote-process; do
        segments=$(field "$(echo "$placement" | tr - _)" "/tmp/$1-$2-analyze.log")
        if [ "$placement" = "$2" ]; then
            at_least "$1 by $2: segments by $placement" "${segments:-0}" 1
        elif [ "${segments:-0}" != 0 ]; then
            fail "$1 by $2: $segments segments ran by $placement"
        fi
    done
}

# tpch_q06 NETWORK_DEVICE: loads TPC-H at scale factor 0.01 and runs query 6 both ways; the answer is an independent engine's.
tpch_q06() {
    step load-tpch 120 rackscan load tpch --scale 0.01
    q06=$(tail -n 1 /guest/q06.tsv)
    for way in remote-fetch remote-process; do ask q06 "$way" "$1" "$q06" q06 query; done
}

# stop_nodes: asks all to stop, over the wire.
stop_nodes() {
    step stop 30 rackscan cluster stop
}
