# Run by `cargo xtask test deploy` as `sh -eu container.sh PLACE FILE NAME ARCHITECTURE start|examine`, in a PID
# namespace of its own: FILE is an image of that name, PLACE an empty directory.
cd "$1"
file=$2 name=$3 architecture=$4 how=$5

say() { echo "deploy: $*"; }
fail() {
    echo "deploy: FAILED: $*" >&2
    exit 1
}
# A value of a JSON file, which has to be this one.
has() {
    found=$(jq -c "$2" "$1")
    [ "$found" = "$3" ] || fail "$1: $2 is $found, not $3"
}

mkdir layout
tar xf "$file" -C layout
has layout/oci-layout .imageLayoutVersion '"1.0.0"'
has layout/index.json '.manifests | length' 1
has layout/index.json '.manifests[0].mediaType' '"application/vnd.oci.image.manifest.v1+json"'
has layout/index.json '.manifests[0].annotations["org.opencontainers.image.ref.name"]' "\"$name\""
for blob in layout/blobs/sha256/*; do
    [ "$(sha256sum <"$blob")" = "$(basename "$blob")  -" ] || fail "$blob has another digest"
done
[ "$(ls layout/blobs/sha256 | wc -l)" = 3 ] || fail "the layout has blobs of nobody"
blob() { echo "layout/blobs/sha256/$(jq -r "$2" "$1" | cut -d : -f 2)"; }
manifest=$(blob layout/index.json '.manifests[0].digest')
has "$manifest" .config.mediaType '"application/vnd.oci.image.config.v1+json"'
has "$manifest" '[.layers[].mediaType]' '["application/vnd.oci.image.layer.v1.tar+gzip"]'
has "$manifest" '.annotations["org.opencontainers.image.licenses"]' '"Apache-2.0 OR MIT"'
image=$(blob "$manifest" .config.digest)
has "$image" .architecture "\"$architecture\""
has "$image" '.config.Labels["org.opencontainers.image.title"]' '"fogmux"'
has "$image" '.config.ExposedPorts | length' 11
has "$image" '.config.StopSignal' '"SIGTERM"'

# It compares the digests of blobs and of the unpacked layer.
umoci unpack --image "layout:$name" bundle
has bundle/config.json .process.user '{"uid":10001,"gid":10001}'
volume=$(jq -r '.config.Volumes | keys[0]' "$image")
[ "$(stat -c '%u:%g %a' "bundle/rootfs$volume")" = "10001:10001 700" ] || fail "the volume is not the user's own"
say "the image's layout, digests and settings are right: $(stat -c %s "$file") bytes"
[ "$how" = start ] || exit 0

# The settings of `podman run --read-only --cap-drop all -v …`: an engine fills a new volume with the directory of the
# image, and puts a file system in memory at /tmp. It has a network of its own, in which there is only loopback.
mkdir volume
chown 10001:10001 volume
chmod 700 volume
jq --arg volume "$volume" --arg source "$PWD/volume" '
    .process.terminal = false | .process.capabilities = {} | .root.readonly = true
    | .mounts |= map(select(.destination != $volume)) + [
        {destination: $volume, type: "bind", source: $source, options: ["bind", "rw", "nosuid", "nodev", "noexec"]},
        {destination: "/tmp", type: "tmpfs", source: "tmpfs", options: ["nosuid", "nodev", "mode=1777"]}]
    ' bundle/config.json >config.json
mv config.json bundle/config.json

container=fogmux-check-$(date +%s%N)
runc() { command runc --root "$PWD/state" "$@"; }
trap 'runc delete --force "$container" 2>/dev/null || true' EXIT
begin() {
    # Not by a function: that would be a shell of its own, which is what is waited for.
    command runc --root "$PWD/state" run --bundle bundle "$container" >log 2>&1 &
    engine=$!
    for _ in $(seq 200); do
        if process=$(runc state "$container" 2>/dev/null | jq -e .pid) && [ "${process:-0}" != 0 ] &&
            answer=$(nsenter --net --target "$process" curl --silent http://127.0.0.1:8080/readyz) &&
            [ "$answer" = ready ]; then
            return
        fi
        kill -0 "$engine" 2>/dev/null || break
        sleep 0.1
    done
    cat log
    fail "the container does not answer /readyz"
}
end() {
    runc kill "$container" TERM
    wait "$engine" || fail "the container ended with $?"
}
begin
say "the container answers /readyz: $answer"
runc exec "$container" /usr/bin/fogmux pub -r mqtt://127.0.0.1/greeting hello
echo secret | runc exec "$container" /usr/bin/fogmux passwd alice
end
begin
[ "$(runc exec "$container" /usr/bin/fogmux get coap://127.0.0.1/greeting)" = hello ] || fail "the message is lost"
grep -q alice volume/users.toml || fail "the command in the container changed no user of the volume"
runc exec "$container" /usr/bin/fogmux check /etc/fogmux/fogmux.toml
end
say "a container of user 10001 with a read-only root and no capability starts, keeps its messages, and ends in order"
