#!/bin/sh
# Installs fogmux from this archive on a system with systemd, or takes it away again:
#
#   ./install.sh               the program, its manual pages and the unit; a configuration if there is none; the user
#   ./install.sh --uninstall   removes what was installed, and keeps /etc/fogmux and /var/lib/fogmux
#
# The archive of another version upgrades or downgrades. DESTDIR=/somewhere installs below that directory and makes no
# user.
set -eu
# The order of names is that of their bytes.
export LC_ALL=C

root=${DESTDIR:-}
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"
# The names of all that was installed: another version may have others.
list=usr/share/fogmux/installed

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

# Removes a file, or a directory if it is empty.
remove() {
    case "$1" in
    */) rmdir "$root/$1" 2>/dev/null || true ;;
    *) rm -f "$root/$1" ;;
    esac
}

[ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "run as root, or set DESTDIR"
if [ -z "$root" ] && command -v dpkg-query >/dev/null && dpkg-query --search /usr/bin/fogmux >/dev/null 2>&1; then
    fail "/usr/bin/fogmux belongs to a Debian package; remove that first"
fi

case "${1:-}" in
--uninstall)
    service disable --now fogmux.service || true
    [ -e "$root/$list" ] || fail "nothing is installed: there is no $root/$list"
    # The content of a directory comes before it.
    sort -r "$root/$list" | while read -r file; do
        remove "$file"
    done
    service daemon-reload
    echo "fogmux is removed; /etc/fogmux and /var/lib/fogmux are kept, with all keys and messages"
    exit 0
    ;;
"") ;;
*) fail "there is no option $1" ;;
esac

if [ -z "$root" ] && ! command -v useradd >/dev/null && ! grep -q '^fogmux:' /etc/passwd; then
    fail "there is no useradd: make a system user fogmux first"
fi

# All files, and the directories that are made for them, now or by an earlier version.
files=$(
    find usr -type f
    (find usr -type d && echo "${list%/*}") | while read -r directory; do
        [ -e "$root/$directory" ] || echo "$directory/"
    done
    grep '/$' "$root/$list" 2>/dev/null || true
    echo "$list"
)
if [ -e "$root/$list" ]; then
    printf '%s\n' "$files" >"$root/$list.new"
    grep -vxFf "$root/$list.new" "$root/$list" | while read -r file; do
        remove "$file"
    done
fi
find usr -type f | while read -r file; do
    mode=0644
    [ "$file" = usr/bin/fogmux ] && mode=0755
    install -D -m "$mode" "$file" "$root/$file.new"
    # A rename: a program that runs cannot be written to.
    mv -f "$root/$file.new" "$root/$file"
done
install -d -m 0755 "$root/${list%/*}"
printf '%s\n' "$files" >"$root/$list.new"
mv -f "$root/$list.new" "$root/$list"
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
