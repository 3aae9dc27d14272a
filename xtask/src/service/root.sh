# Makes a root directory for systemd, becomes its first process and starts the unit and a probe. Nothing of this machine
# can be changed from there: its files are seen read-only, devices, /tmp, /run and /var are others, and so is the kernel's
# configuration.
#
# boot.sh starts this in namespaces. The probe's output is in PLACE/said.
place=$1 program=$2 unit=$3 probe=$4
root=$place/root
mkdir -p "$root"
: > "$place/said"
mount -t tmpfs -o mode=755 none "$root"
cd "$root"
mkdir usr etc var run tmp dev proc sys root old upper work var/lib var/log var/tmp
# A file system of its own: else systemd mounts the kernel's devtmpfs there, which is this machine's /dev.
mount -t tmpfs -o mode=755 none dev
mkdir -p etc/systemd/system etc/fogmux dev/shm
# PrivateDevices= wants it.
ln -s pts/ptmx dev/ptmx
chmod 1777 tmp var/tmp
for name in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$name" ]; then cp -P "/$name" .; fi
done
mount -t overlay overlay -o lowerdir=/usr,upperdir=upper,workdir=work usr
for name in null zero full random urandom tty; do
    touch "dev/$name"
    mount --bind "/dev/$name" "dev/$name"
done
mount -t proc none proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro none sys
mount -t cgroup2 none sys/fs/cgroup
cp -a /etc/ld.so.* /etc/nsswitch.conf /etc/hosts /etc/passwd /etc/group etc
if [ -d /etc/alternatives ]; then cp -a /etc/alternatives etc; fi
echo fogmux:x:970:970::/var/lib/fogmux:/usr/sbin/nologin >> etc/passwd
echo fogmux:x:970: >> etc/group
: > etc/machine-id
: > etc/fogmux/fogmux.toml
install -m 755 "$program" usr/bin/fogmux
cp "$unit" etc/systemd/system/fogmux.service
cp "$probe" probe.sh
touch said
mount --bind "$place/said" said
# Nothing of a boot is wanted but the unit: what it usually needs is empty.
for name in sysinit basic shutdown; do
    printf '[Unit]\nDefaultDependencies=no\n' > etc/systemd/system/$name.target
done
cat > etc/systemd/system/probe.service <<UNIT
[Unit]
DefaultDependencies=no
After=fogmux.service
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh -eu /probe.sh
StandardOutput=file:/said
StandardError=file:/said
ExecStopPost=/bin/systemctl exit 0
UNIT
printf '[Unit]\nDefaultDependencies=no\nWants=fogmux.service probe.service\n' > etc/systemd/system/check.target
ip link set lo up
pivot_root . old
umount -l /old
# As a container has it, and systemd wants: it mounts credentials in a namespace of its own, for others to see.
mount --make-rshared /
# The clock and the modules of the kernel are this machine's too.
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    setpriv --bounding-set=-sys_module,-sys_time,-sys_boot,-sys_rawio,-mknod \
    /lib/systemd/systemd --system --unit=check.target --log-target=console --log-level=warning --show-status=no
