# What do all scenarios of the guest share? Steps with their times, two RDMA devices, counters of what crossed.
# Sourced by busybox's sh. Lines that begin with "== " are shown by the host while the guest runs.

# busybox would take its own applet.
ip() { /usr/local/bin/ip "$@"; }

now() { cut -d ' ' -f 1 /proc/uptime; }
since() { echo "$(now) $1" | awk '{ printf "%.1f", $1 - $2 }'; }

# fail TEXT...: the scenario ends here.
fail() {
    echo "== FAILED: $*"
    exit 1
}

# step NAME SECONDS_MAX COMMAND...: runs the command and says how long it took. Its output is in /tmp/NAME.log, and on the
# serial port if it fails, which ends the scenario with the command's status.
step() {
    step_name=$1 step_limit=$2 step_start=$(now) step_status=0
    shift 2
    timeout "$step_limit" "$@" >"/tmp/$step_name.log" 2>&1 || step_status=$?
    if [ "$step_status" != 0 ]; then
        tail -n 40 "/tmp/$step_name.log" | sed 's/^/   /'
        [ "$step_status" != 143 ] || echo "== $step_name was ended: it took more than $step_limit s"
        for step_log in /tmp/node*.log; do
            [ ! -e "$step_log" ] || tail -n 20 "$step_log" | sed "s|^|   $step_log: |"
        done
        dmesg | tail -n 20 | sed 's/^/   kernel: /'
        echo "== FAILED $step_name: status $step_status after $(since "$step_start") s"
        exit "$step_status"
    fi
    echo "== ok $step_name, $(since "$step_start") s"
}

# pair NAME SECONDS_MAX SERVER CLIENT: a server in the background, then a client; both must succeed. The client is tried
# again while nobody listens yet.
pair() {
    pair_name=$1 pair_limit=$2 pair_start=$(now) pair_client=1
    timeout "$pair_limit" sh -c "$3" >"/tmp/$pair_name.server.log" 2>&1 &
    pair_server=$!
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.3
        if timeout "$pair_limit" sh -c "$4" >"/tmp/$pair_name.client.log" 2>&1; then
            pair_client=0
            break
        fi
        kill -0 "$pair_server" 2>/dev/null || break
    done
    [ "$pair_client" = 0 ] || kill "$pair_server" 2>/dev/null
    pair_status=0
    wait "$pair_server" || pair_status=$?
    if [ "$pair_client" != 0 ] || [ "$pair_status" != 0 ]; then
        tail -n 15 "/tmp/$pair_name.server.log" | sed 's/^/   server: /'
        tail -n 15 "/tmp/$pair_name.client.log" | sed 's/^/   client: /'
        fail "$pair_name: the server's status is $pair_status, the client's $pair_client in attempt $attempt"
    fi
    echo "== ok $pair_name, $(since "$pair_start") s"
}

# Two RDMA devices, rxe1 at 10.2.0.1 on v1 and rxe2 at 10.2.0.2 on v2. Both addresses are this host's own, so the kernel
# would deliver between them over lo; the rules make packets leave by one end of the veth pair and arrive at the other.
# (Two network namespaces would need no rules, but rxe of Linux 6.1 does not work with them.)
two_devices() {
    ip link set lo up
    ip link add v1 type veth peer name v2 || return 1
    for i in 1 2; do
        # 4200 leaves room for RoCE's own headers around its largest payload, 4096.
        ip link set "v$i" mtu 4200 && ip addr add "10.2.0.$i/24" dev "v$i" && ip link set "v$i" up || return 1
        echo 1 >"/proc/sys/net/ipv4/conf/v$i/accept_local"
        echo 0 >"/proc/sys/net/ipv4/conf/v$i/rp_filter"
        echo 1 >"/proc/sys/net/ipv4/conf/v$i/arp_ignore"
        echo 2 >"/proc/sys/net/ipv4/conf/v$i/arp_announce"
    done
    echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
    ip rule add pref 1 iif v1 lookup local && ip rule add pref 2 iif v2 lookup local || return 1
    ip route add 10.2.0.2/32 dev v1 src 10.2.0.1 table 101 && ip route add 10.2.0.1/32 dev v2 src 10.2.0.2 table 102 || return 1
    ip rule add pref 11 from 10.2.0.1 to 10.2.0.2 lookup 101 && ip rule add pref 12 from 10.2.0.2 to 10.2.0.1 lookup 102 || return 1
    ip rule add pref 13 oif v1 to 10.2.0.2 lookup 101 && ip rule add pref 14 oif v2 to 10.2.0.1 lookup 102 || return 1
    ip rule add pref 1000 lookup local && ip rule del pref 0 || return 1
    ip neigh replace 10.2.0.2 lladdr "$(cat /sys/class/net/v2/address)" dev v1 || return 1
    ip neigh replace 10.2.0.1 lladdr "$(cat /sys/class/net/v1/address)" dev v2 || return 1
    for i in 1 2; do rdma link add "rxe$i" type rxe netdev "v$i" || return 1; done
}

# One RDMA device, rxe0 at 10.3.0.1 (role a) or 10.3.0.2 (role b), on the network card that leads to the other guest; its
# name is then in card. Back when the other guest answers.
one_device() {
    case $ROLE in a) me=1 peer=2 ;; *) me=2 peer=1 ;; esac
    ip link set lo up
    for card in /sys/class/net/*; do
        card=${card##*/}
        [ "$card" = lo ] || break
    done
    ip link set "$card" mtu 4200 && ip addr add "10.3.0.$me/24" dev "$card" && ip link set "$card" up || return 1
    rdma link add rxe0 type rxe netdev "$card" || return 1
    for _ in $(seq 100); do
        if ping -c 1 -W 1 "10.3.0.$peer" >/dev/null 2>&1; then return 0; fi
        sleep 0.3
    done
    echo "the other guest does not answer at 10.3.0.$peer"
    return 1
}

# What the network device has sent and received so far.
crossed() { cat "/sys/class/net/$1/statistics/tx_$2" "/sys/class/net/$1/statistics/rx_$2" | awk '{ n += $1 } END { printf "%.0f", n }'; }
crossed_packets() { crossed "$1" packets; }
crossed_bytes() { crossed "$1" bytes; }

# at_least WHAT FOUND EXPECTED
at_least() {
    [ "$2" -ge "$3" ] || fail "$1: found $2, expected at least $3"
    echo "== ok $1: $2, expected at least $3"
}

# The kernel's own complaints fail a scenario whose commands all succeeded.
kernel_is_well() {
    if dmesg | grep -E 'BUG:|Oops|WARNING: CPU' | head -n 5 | grep .; then
        fail 'the kernel complained, see above'
    fi
}
