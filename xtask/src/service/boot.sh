# Runs systemd with the unit and the probe in namespaces and a cgroup of its own, which is removed in the end.
#
#   PATIENCE=SECONDS sh -eu boot.sh PLACE PROGRAM UNIT PROBE
hierarchy=/sys/fs/cgroup
if [ ! -e $hierarchy/cgroup.controllers ]; then hierarchy=$hierarchy/unified; fi
cgroup=$hierarchy$(sed -n 's/^0:://p' /proc/self/cgroup)/fogmux-unit-$$
mkdir "$cgroup"
clean() {
    # Whatever is left there ends, also what is in namespaces.
    until find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null; do
        find "$cgroup" -name cgroup.procs -exec cat {} + 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
        sleep 0.1
    done
}
trap clean EXIT
trap 'exit 143' TERM INT HUP
# The limit ends unshare, that systemd, and this stays to clean up.
sh -euc 'echo $$ > "$0/cgroup.procs"; exec timeout --signal=KILL "$PATIENCE" unshare --pid --mount --uts --ipc --net \
    --cgroup --propagation private --fork --kill-child sh -eu "$@"' "$cgroup" "$1/root.sh" "$@"
