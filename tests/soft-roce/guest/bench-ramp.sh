# What do transactions cost over verbs, next to tcp between the same processes? Emulated adapters and processors show ratios, not speed.
. /guest/lib.sh
two_devices || fail 'no two RDMA devices'

RACKSCAN_VERBS_DEVICE=rxe2 step bench-ramp 700 rackscan lab ramp --wires verbs,tcp --verbs rxe1@10.2.0.1 --algorithms ramp-fast,s2pl --sizes 4,8 --keys 500 --rounds 1 --seconds 8 \
    --warm-up 8 --folder /data --json /tmp/ramp.jsonl
cat /tmp/bench-ramp.log /tmp/ramp.jsonl
kernel_is_well
