# Does the harness notice a guest that does not pass? Fails in the way that HOW says; `run harness` expects it to be told.
case $HOW in
fail) exit 7 ;;
panic) echo c >/proc/sysrq-trigger ;;
hang | slow) sleep 1000 ;;
vanish) poweroff -f ;;
step) . /guest/lib.sh && step never 2 sleep 1000 ;;
esac
