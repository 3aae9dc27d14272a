# Run by `cargo xtask test deploy` as `sh -eu check.sh ROOT`, in namespaces of its own: ROOT is a Debian with nothing but
# what every Debian has. /root in it has old.deb, new.deb, symbols.deb and archive.tar.gz.
root=$1
ip link set lo up
mount --make-rprivate /
mount -t proc proc "$root/proc"

say() { echo "deploy: $*"; }
fail() {
    echo "deploy: FAILED: $*" >&2
    exit 1
}
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
as_user() { inside setpriv --reuid fogmux --regid fogmux --clear-groups "$@"; }
# Everything but what dpkg and the libraries note about themselves.
files() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./root -o -path ./tmp -o -path ./var/lib/dpkg -o -path ./var/cache \
        -o -path ./var/log -o -path ./var/lib/systemd \) -prune -o -print) | grep -v -e '/\(passwd\|group\|shadow\|gshadow\|subuid\|subgid\)-\?$' |
        LC_ALL=C sort
}
start() {
    # Not by a function: that would be a shell of its own, which is what SIGTERM would end.
    chroot "$root" setpriv --reuid fogmux --regid fogmux --clear-groups \
        fogmux serve --config /etc/fogmux/fogmux.toml --data /var/lib/fogmux >"$root/root/log" 2>&1 &
    gateway=$!
    for _ in $(seq 200); do
        if inside fogmux get http://127.0.0.1/none >/dev/null 2>&1 || inside fogmux pub mqtt://127.0.0.1/none 1 2>/dev/null; then
            return
        fi
        kill -0 "$gateway" 2>/dev/null || break
        sleep 0.1
    done
    cat "$root/root/log"
    fail "the gateway does not answer"
}
stop() {
    kill -TERM "$gateway"
    wait "$gateway" || fail "the gateway ended with $?"
}
# mosquitto's clients are this machine's, in the same network namespace.
kept() {
    [ "$(inside fogmux get coap://127.0.0.1/greeting)" = hello ] || fail "$1: the retained message is lost"
    got=$(mosquitto_sub -i away -c -q 1 -t 'queue/#' -C 1 -W 10) || fail "$1: the session has no message"
    [ "$got" = "$2" ] || fail "$1: the session has $got"
    mosquitto_pub -q 1 -t queue/1 -m "$3"
    echo secret | inside sh -c 'cat > /tmp/password'
    inside fogmux get --user alice --password-file /tmp/password https://127.0.0.1/greeting --ca /var/lib/fogmux/pki/ca.pem \
        >/dev/null || fail "$1: alice cannot log in"
}

before=$(files)
inside dpkg --install /root/old.deb
[ "$(stat -c '%U %a' "$root/var/lib/fogmux" 2>/dev/null || true)" != "" ] || fail "there is no data directory"
[ "$(inside stat -c '%U:%G %a' /var/lib/fogmux)" = "fogmux:fogmux 700" ] || fail "the data directory is open"
start
# The two commands of the README.
inside fogmux pub -r mqtt://127.0.0.1/greeting hello
[ "$(inside fogmux get http://127.0.0.1/greeting)" = hello ] || fail "no first message"
say "first message by two commands"
echo secret | as_user fogmux passwd --data /var/lib/fogmux alice
mosquitto_sub -i away -c -q 1 -t 'queue/#' -E
mosquitto_pub -q 1 -t queue/1 -m one
stop

echo '# ours' >>"$root/etc/fogmux/fogmux.toml"
echo '[log]' >"$root/etc/fogmux/conf.d/ours.toml"
key=$(sha256sum <"$root/var/lib/fogmux/pki/ca.key" 2>/dev/null || sha256sum <"$root/var/lib/fogmux/pki/ca.pem")
inside dpkg --force-confdef --force-confold --install /root/new.deb /root/symbols.deb
inside dpkg --verify fogmux | grep -v ' c /etc/fogmux/fogmux.toml' && fail "installed files differ from the package's"
start
kept upgrade one two
stop
inside dpkg --remove fogmux-dbgsym
inside dpkg --force-downgrade --force-confdef --force-confold --install /root/old.deb
start
kept downgrade two three
stop
[ "$key" = "$(sha256sum <"$root/var/lib/fogmux/pki/ca.key" 2>/dev/null || sha256sum <"$root/var/lib/fogmux/pki/ca.pem")" ] ||
    fail "the authority's key changed"
grep -q '^# ours' "$root/etc/fogmux/fogmux.toml" || fail "the configuration was replaced"
say "upgrade and downgrade keep session, messages, users, keys and configuration"

inside dpkg --remove fogmux
[ -e "$root/var/lib/fogmux/pki/ca.pem" ] && [ -e "$root/etc/fogmux/fogmux.toml" ] || fail "removal took data"
inside dpkg --install /root/new.deb
start
kept "removal and installation" three four
stop
rm "$root/etc/fogmux/conf.d/ours.toml"
inside dpkg --purge fogmux
after=$(files)
[ "$before" = "$after" ] || {
    echo "$before" >"$root/tmp/before"
    echo "$after" >"$root/tmp/after"
    diff "$root/tmp/before" "$root/tmp/after" || true
    fail "purge leaves files"
}
inside getent passwd fogmux && fail "purge leaves the user"
say "purge leaves nothing"

inside groupadd fogmux
inside dpkg --install /root/new.deb || fail "a group of that name keeps the package from being installed"
inside dpkg --purge fogmux
inside getent group fogmux >/dev/null && inside groupdel fogmux
inside useradd --create-home fogmux
inside dpkg --install /root/new.deb
inside dpkg --purge fogmux
inside getent passwd fogmux >/dev/null || fail "purge removes a user that is not the package's"
inside userdel --remove fogmux 2>/dev/null || true
say "a group or a user of that name is no hindrance, and stays"

inside sh -euc 'cd /root && tar xzf archive.tar.gz && cd fogmux-*/ && ./install.sh'
start
inside fogmux pub -r mqtt://127.0.0.1/greeting hello
stop
inside sh -euc 'cd /root/fogmux-*/ && ./install.sh --uninstall'
[ ! -e "$root/usr/bin/fogmux" ] && [ -e "$root/var/lib/fogmux/pki/ca.pem" ] || fail "the installer of the archive"
say "the archive installs and uninstalls"
