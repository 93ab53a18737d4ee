# Is this guest fit to judge our wire? Checks with other people's programs what the scenarios take for granted.
. /guest/lib.sh

two_devices || fail 'no two RDMA devices'
for i in 1 2; do
    ibv_devinfo -d "rxe$i" -v >"/tmp/rxe$i.log" 2>&1 || fail "ibv_devinfo -d rxe$i: $(tail -n 1 "/tmp/rxe$i.log")"
    grep -q 'state:.*PORT_ACTIVE' "/tmp/rxe$i.log" || fail "rxe$i: its port is not active"
    grep -q 'active_mtu:.*4096' "/tmp/rxe$i.log" || fail "rxe$i: its MTU is not 4096"
    grep -q "GID\[ *1\]:.*10\.2\.0\.$i" "/tmp/rxe$i.log" || fail "rxe$i: GID 1 is not 10.2.0.$i"
done
echo '== ok rxe1 and rxe2: active, MTU 4096, GID 1'

lo=$(crossed_packets lo) v1=$(crossed_packets v1)
pair send_and_receive 15 'ibv_rc_pingpong -d rxe1 -g 1 -n 200' 'ibv_rc_pingpong -d rxe2 -g 1 -n 200 10.2.0.1'
# 200 messages of 4096 bytes in either direction.
at_least 'packets that crossed the veth pair' "$(($(crossed_packets v1) - v1))" 400
# Only the exchange of numbers at the start goes the short way.
[ "$(($(crossed_packets lo) - lo))" -lt 100 ] || fail "$(($(crossed_packets lo) - lo)) packets took lo instead of the veth pair"

for kind in write read atomic; do
    v1=$(crossed_packets v1)
    pair "one_sided_$kind" 20 "ib_${kind}_lat -d rxe1 -x 1 -F -n 50" "ib_${kind}_lat -d rxe2 -x 1 -F -n 50 10.2.0.1"
    at_least "packets of one-sided ${kind}s" "$(($(crossed_packets v1) - v1))" 100
done
pair connection_manager 15 'rping -s -a 10.2.0.1 -C 5' 'rping -c -a 10.2.0.1 -I 10.2.0.2 -C 5'

# Storage nodes read and write past the page cache; tmpfs refuses that, the disk does not.
step direct_write 20 dd if=/dev/zero of=/data/direct bs=1M count=8 oflag=direct
step direct_read 20 dd if=/data/direct of=/dev/null bs=128k iflag=direct
rm /data/direct
[ "$(ulimit -l)" = unlimited ] || fail "locked memory is limited to $(ulimit -l) KiB"
for file in /dev/shm/selftest /tmp/selftest; do echo x >"$file" || fail "cannot write $file"; done
[ -r /proc/sys/kernel/random/uuid ] || fail 'no /proc/sys/kernel/random/uuid'
kernel_is_well
