# Run by `cargo xtask test deploy` as `sh -eu check.sh ROOT PART…`, in namespaces of its own: ROOT is a Debian with
# nothing but what every Debian has. /root in it has old.tar.gz and new.tar.gz, and for the part `packages` old.deb,
# new.deb and symbols.deb.
root=$1
shift
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
# The state that an upgrade has to keep: a retained message, a user, and a session that is away while a message comes.
# mosquitto's clients are this machine's, in the same network namespace.
begin() {
    start
    # The two commands of the README.
    inside fogmux pub -r mqtt://127.0.0.1/greeting hello
    [ "$(inside fogmux get http://127.0.0.1/greeting)" = hello ] || fail "no first message"
    say "first message by two commands"
    echo secret | as_user fogmux passwd --data /var/lib/fogmux alice
    mosquitto_sub -i away -c -q 1 -t 'queue/#' -E
    mosquitto_pub -q 1 -t queue/1 -m one
    echo '# ours' >>"$root/etc/fogmux/fogmux.toml"
    echo '[log]' >"$root/etc/fogmux/conf.d/ours.toml"
    key=$(keys)
}
# Sums of the authority's key and certificate and of the gateway's.
keys() { (cd "$root/var/lib/fogmux/pki" && find . -type f | LC_ALL=C sort | xargs sha256sum); }
kept() {
    [ "$(inside fogmux get coap://127.0.0.1/greeting)" = hello ] || fail "$1: the retained message is lost"
    got=$(mosquitto_sub -i away -c -q 1 -t 'queue/#' -C 1 -W 10) || fail "$1: the session has no message"
    [ "$got" = "$2" ] || fail "$1: the session has $got"
    mosquitto_pub -q 1 -t queue/1 -m "$3"
    echo secret | inside sh -c 'cat > /tmp/password'
    inside fogmux get --user alice --password-file /tmp/password https://127.0.0.1/greeting --ca /var/lib/fogmux/pki/ca.pem \
        >/dev/null || fail "$1: alice cannot log in"
    [ "$key" = "$(keys)" ] || fail "$1: keys changed"
    grep -q '^# ours' "$root/etc/fogmux/fogmux.toml" && [ -e "$root/etc/fogmux/conf.d/ours.toml" ] ||
        fail "$1: the configuration was replaced"
}
demonstrate() {
    inside fogmux demo >"$root/root/log" 2>&1 || {
        cat "$root/root/log"
        fail "fogmux demo"
    }
    say "$(tail -n 1 "$root/root/log")"
}
# Compares the files with those of before.
same() {
    after=$(files)
    [ "$before" = "$after" ] && return
    echo "$before" >"$root/tmp/before"
    echo "$after" >"$root/tmp/after"
    diff "$root/tmp/before" "$root/tmp/after" || true
    fail "$1 leaves files"
}

packages() {
    before=$(files)
    inside dpkg --install /root/old.deb
    [ "$(inside stat -c '%U:%G %a' /var/lib/fogmux)" = "fogmux:fogmux 700" ] || fail "the data directory is open"
    begin
    stop
    inside dpkg --force-confdef --force-confold --install /root/new.deb /root/symbols.deb
    inside dpkg --verify fogmux | grep -v ' c /etc/fogmux/fogmux.toml' && fail "installed files are not the package's"
    start
    kept upgrade one two
    stop
    inside dpkg --remove "$(inside dpkg-deb --field /root/symbols.deb Package)"
    inside dpkg --force-downgrade --force-confdef --force-confold --install /root/old.deb
    start
    kept downgrade two three
    stop
    say "upgrade and downgrade of the package keep session, messages, users, keys and configuration"
    demonstrate

    inside dpkg --remove fogmux
    [ -e "$root/var/lib/fogmux/pki/ca.pem" ] && [ -e "$root/etc/fogmux/fogmux.toml" ] || fail "removal took data"
    inside dpkg --install /root/new.deb
    start
    kept "removal and installation" three four
    stop
    rm "$root/etc/fogmux/conf.d/ours.toml"
    inside dpkg --purge fogmux
    same purge
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
}

archive() {
    before=$(files)
    for name in old new; do
        mkdir "$root/root/$name"
        inside tar xzf "/root/$name.tar.gz" --directory "/root/$name" --strip-components 1
    done
    # A file of the version before that this one does not have any more.
    touch "$root/root/old/usr/share/man/man1/fogmux-previous.1.gz"
    inside /root/old/install.sh
    begin
    # The program that runs is replaced.
    inside /root/new/install.sh
    stop
    [ ! -e "$root/usr/share/man/man1/fogmux-previous.1.gz" ] || fail "an upgrade leaves files of the version before"
    start
    kept "upgrade by the archive" one two
    stop
    inside /root/old/install.sh
    start
    kept "downgrade by the archive" two three
    stop
    inside /root/new/install.sh
    say "upgrade and downgrade by the archive keep session, messages, users, keys and configuration"
    demonstrate
    # The archive that installed it may be gone: that of another version uninstalls as well.
    inside /root/old/install.sh --uninstall
    [ -e "$root/var/lib/fogmux/pki/ca.pem" ] && [ -e "$root/etc/fogmux/fogmux.toml" ] || fail "uninstalling took data"
    rm -r "$root/etc/fogmux" "$root/var/lib/fogmux"
    same "uninstalling"
    say "uninstalling keeps configuration and data, and leaves nothing else"
}

# A static program needs no other file.
alone() {
    mkdir -p "$root/root/alone/tmp"
    tar xzf "$root/root/new.tar.gz" --directory "$root/root/alone" --strip-components 3 --wildcards '*/usr/bin/fogmux'
    chroot "$root/root/alone" /fogmux demo >"$root/root/log" 2>&1 || {
        cat "$root/root/log"
        fail "the program needs files that are not in an empty directory"
    }
    say "in an empty directory: $(tail -n 1 "$root/root/log")"
}

for part; do
    "$part"
done
