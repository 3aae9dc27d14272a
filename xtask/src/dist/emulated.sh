# Run as `sh -eu emulated.sh HANDLER COMMAND…`: runs the command in namespaces of its own, in which the kernel starts
# programs of another architecture as HANDLER says, a file of binfmt.d(5). The handler is registered in a user namespace
# (Linux 6.7 and later): this machine's own list stays as it is.
if [ "$1" = --root ]; then
    mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
    cat "$2" >/proc/sys/fs/binfmt_misc/register
    shift 2
    exec "$@"
fi
if [ "$1" = --nobody ]; then
    shift
    until grep -q . /proc/self/uid_map && grep -q . /proc/self/gid_map; do sleep 0.05; done
    # This shell is nobody still, and has lost its capabilities: the program that it becomes is root.
    exec sh -eu "$0" --root "$@"
fi
unshare --user --net --mount --pid --fork --kill-child sh -eu "$0" --nobody "$@" &
# Until the process has left it, the map is that of the namespace here, which nobody can write.
for _ in $(seq 100); do
    if echo "0 0 65536" 2>/dev/null >"/proc/$!/uid_map"; then break; fi
    sleep 0.05
done
echo "0 0 65536" >"/proc/$!/gid_map"
wait "$!"
