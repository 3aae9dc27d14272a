#!/bin/sh
# Installs fogmux from this archive on a system with systemd, or takes it away again:
#
#   ./install.sh               the program, its manual pages and the unit; a configuration if there is none; the user
#   ./install.sh --uninstall   removes what was installed, and keeps /etc/fogmux and /var/lib/fogmux
#
# DESTDIR=/somewhere installs below that directory and makes no user.
set -eu

root=${DESTDIR:-}
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

# A service may be there only where systemd runs and nothing is installed elsewhere.
service() {
    if [ -z "$root" ] && [ -d /run/systemd/system ]; then
        systemctl "$@"
    fi
}

[ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "run as root, or set DESTDIR"
if [ -z "$root" ] && command -v dpkg-query >/dev/null && dpkg-query --search /usr/bin/fogmux >/dev/null 2>&1; then
    fail "/usr/bin/fogmux belongs to a Debian package; remove that first"
fi

case "${1:-}" in
--uninstall)
    service disable --now fogmux.service || true
    find usr -type f | while read -r file; do
        rm -f "$root/$file"
    done
    service daemon-reload
    echo "fogmux is removed; /etc/fogmux and /var/lib/fogmux are kept, with all keys and messages"
    exit 0
    ;;
"") ;;
*) fail "there is no option $1" ;;
esac

find usr -type f | while read -r file; do
    mode=0644
    [ "$file" = usr/bin/fogmux ] && mode=0755
    install -D -m "$mode" "$file" "$root/$file.new"
    # A rename: a program that runs cannot be written to.
    mv -f "$root/$file.new" "$root/$file"
done
install -d -m 0755 "$root/etc/fogmux" "$root/etc/fogmux/conf.d"
if [ ! -e "$root/etc/fogmux/fogmux.toml" ]; then
    install -m 0644 etc/fogmux/fogmux.toml "$root/etc/fogmux/fogmux.toml"
fi
[ -z "$root" ] || exit 0

if ! getent passwd fogmux >/dev/null; then
    # A group of that name may be there already.
    getent group fogmux >/dev/null && own='--gid fogmux' || own=--user-group
    useradd --system $own --home-dir /var/lib/fogmux --no-create-home --shell /usr/sbin/nologin fogmux
fi
if [ ! -e /var/lib/fogmux ]; then
    install -d -o fogmux -g fogmux -m 0700 /var/lib/fogmux
fi
service daemon-reload
service enable fogmux.service
service restart fogmux.service
echo "fogmux $(/usr/bin/fogmux --version | cut -d ' ' -f 2) is installed; fogmux pub -r mqtt://127.0.0.1/hello world"
