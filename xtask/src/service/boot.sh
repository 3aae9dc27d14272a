# Runs systemd with the unit and the probe in namespaces and a cgroup of its own, which is removed in the end.
#
#   sh -eu boot.sh PLACE PROGRAM UNIT PROBE
hierarchy=/sys/fs/cgroup
if [ ! -e $hierarchy/cgroup.controllers ]; then hierarchy=$hierarchy/unified; fi
cgroup=$hierarchy$(sed -n 's/^0:://p' /proc/self/cgroup)/fogmux-unit-$$
mkdir "$cgroup"
trap 'find "$cgroup" -depth -type d -exec rmdir {} +' EXIT
sh -euc 'echo $$ > "$0/cgroup.procs"; exec unshare --pid --mount --propagation private --uts --ipc --net --cgroup \
    --fork --kill-child sh -eu "$@"' "$cgroup" "$1/root.sh" "$@"
