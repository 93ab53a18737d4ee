# Does the wire `verbs` keep the promises of all wires? Runs the fabric's test programs between two devices.
. /guest/lib.sh
two_devices || fail 'no two RDMA devices'

export RACKSCAN_VERBS_LISTEN=rxe1@10.2.0.1 RACKSCAN_VERBS_CALL=rxe2
export RUST_BACKTRACE=1 TMPDIR=/tmp
suites='units conformance inbox'
# A filter that matches nothing passes, so count first.
promises=0
for suite in $suites; do
    "$suite" "$FILTER" --list >"/tmp/$suite.list" || fail "$suite does not start: status $?"
    found=$(grep -c ': test$' "/tmp/$suite.list")
    promises=$((promises + found))
    # A filter of one's own may be about one of them only.
    if [ "$FILTER" = verbs:: ]; then at_least "promises of $suite that match $FILTER" "$found" 1; fi
done
at_least "promises that match $FILTER" "$promises" 1

v1=$(crossed_packets v1) failed=0
for suite in $suites; do
    grep -q ': test$' "/tmp/$suite.list" || continue
    start=$(now) status=0
    "$suite" "$FILTER" --test-threads=1 2>&1 || status=$?
    if [ "$status" = 0 ]; then
        echo "== ok $suite: $(grep -c ': test$' "/tmp/$suite.list") promises, $(since "$start") s"
    else
        echo "== FAILED $suite: status $status after $(since "$start") s"
        failed=$status
    fi
done
[ "$failed" = 0 ] || exit "$failed"
# A single promise may be about a connection that never comes to be.
if [ "$FILTER" = verbs:: ]; then
    at_least 'packets that crossed the veth pair' "$(($(crossed_packets v1) - v1))" 1000
fi
kernel_is_well
