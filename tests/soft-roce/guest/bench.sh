# What does an inbox cost over verbs, next to a ring for each sender? Emulated adapters show ratios, not speed.
. /guest/lib.sh
two_devices || fail 'no two RDMA devices'

ends=rxe1@10.2.0.1,rxe2@10.2.0.2
step bench-fabric 240 rackscan lab fabric --wires verbs --verbs "$ends" --effort 0.01 --repeat 3
cat /tmp/bench-fabric.log
step bench-inbox 500 rackscan lab inbox --wires verbs --verbs "$ends" --effort 0.02 --repeat 15 --senders 64
cat /tmp/bench-inbox.log
kernel_is_well
