# Measures over the API of the gateway that systemd has started, in its unit: under its filter of system calls and all
# its other restrictions, which the measuring process inherits. Then: configurations that are wrong, and a credential.
api=http://127.0.0.1:8080/api/v1/bench

fail() {
    echo "failed: $*"
    journalctl --unit=fogmux --no-pager --output=cat | tail -n 20
    exit 1
}

field() { sed -n "s/.*\"$1\":\"\\([^\"]*\\)\".*/\\1/p"; }

# Submits a job and waits for its end, which has to be as wanted: `state reason`, of which the reason may be a part.
job() {
    wanted=$1 request=$2
    answer=$(curl -sS -H 'content-type: application/json' -d "{$request,\"anyway\":true}" $api)
    id=$(echo "$answer" | sed -n 's/^{"id":\([0-9]*\),.*/\1/p')
    [ -n "$id" ] || fail "$request: $answer"
    until ended=$(curl -sS "$api/$id" | grep -E '"state":"(done|failed)"'); do sleep 0.2; done
    case "$(echo "$ended" | field state) $(echo "$ended" | field reason)" in
        $wanted) ;;
        *) cat "/var/lib/fogmux/bench/$id/log"; fail "$ended" ;;
    esac
    case "$ended" in
        *'"state":"done"'*'"failed":0'* | *'"state":"failed"'*) ;;
        *) fail "not every repetition was measured: $ended" ;;
    esac
    echo "job $id: $(echo "$ended" | field command): $(echo "$ended" | field state)"
}

grep -q ' /dev .* - tmpfs ' /proc/self/mountinfo || fail "the devices are those of this machine"
[ "$(systemctl is-active fogmux)" = active ] || fail "the gateway is not started"
pid=$(systemctl show --property=MainPID --value fogmux)
grep -Eq '^Seccomp:[[:space:]]2$' "/proc/$pid/status" || fail "no filter of system calls"
grep -Eq '^CapEff:[[:space:]]0*$' "/proc/$pid/status" || fail "it has capabilities"

job 'done *' '"run":{"door":"mqtt","to":"coap","security":"none","operation":"deliver","rate":50,"seconds":1,"repeat":1}'
# Every protocol and every stack of TLS and DTLS.
job 'done *' '"matrix":{"doors":["mqtt","coap","http1","http3","xmpp"],"securities":["none","modern","pki","psk","oscore"],
"sizes":[100],"qos":[1],"seconds":1,"repeat":1}'
# As many clients as a job may have: descriptors, threads, memory.
job 'done *' '"run":{"door":"mqtt","security":"modern","operation":"deliver","pubs":500,"subs":500,"rate":1,"seconds":1,
"repeat":1}'
job 'done *' '"paper":{"name":"seoane2021","table":"5","link":"loopback"}'
[ "$(curl -sS -o /dev/null -w '%{http_code}' $api/1/compare/1)" = 200 ] || fail "jobs are not compared"
# The unit does not let it make a network of its own, and the job says so: a table of a document may have one.
job 'failed *root*' '"run":{"door":"mqtt","security":"none","link":"lan","seconds":1,"repeat":1}'
job 'failed *root*--link loopback*' '"paper":{"name":"seoane2021","table":"5"}'

# A job that is ended leaves no process behind.
curl -sS -H 'content-type: application/json' -o /dev/null -d '{"run":{"door":"mqtt","seconds":60},"anyway":true}' $api
children() { pgrep --count --uid fogmux || true; }
until [ "$(children)" -gt 2 ]; do sleep 0.1; done
curl -sS -X DELETE $api/7 -o /dev/null
until [ "$(children)" -eq 1 ]; do sleep 0.1; done
[ "$(systemctl show --property=NRestarts --value fogmux)" = 0 ] || fail "the gateway was started again"
[ "$(systemctl show --property=MainPID --value fogmux)" = "$pid" ] || fail "it is another gateway"

# From here on the configuration changes. A reload with an error in it fails, and the one before stays in force.
config=/etc/fogmux/fogmux.toml
of_unit() { systemctl show --property="$1" --value fogmux; }
publishes() { fogmux pub mqtt://127.0.0.1/a 1 2>/dev/null; }
publishes || fail "an anonymous client is refused by the defaults"
printf '[listeners.mqtt]\nanonymous = false\n[mqtt]\nnothing = 1\n' > $config
if systemctl reload fogmux 2>/dev/null; then fail "a reload of a broken configuration succeeds"; fi
[ "$(of_unit ActiveState) $(of_unit MainPID)" = "active $pid" ] || fail "a broken configuration ends the gateway"
sleep 1
publishes || fail "a part of a broken configuration is in force"
journalctl --unit=fogmux --output=cat | grep -q 'mqtt\.nothing' || fail "the journal does not name the key"
printf '[listeners.mqtt]\nanonymous = false\n' > $config
systemctl reload fogmux || fail "a reload of a good configuration fails"
seconds=0
while publishes; do
    seconds=$((seconds + 1))
    [ $seconds -lt 20 ] || fail "a good configuration is not in force"
    sleep 1
done
echo "a broken configuration is not reloaded"

# A start with an error fails once: a restart would not help. RestartSec is 2 s.
fails_once() {
    if systemctl restart fogmux 2>/dev/null; then fail "it starts with $1"; fi
    sleep 5
    [ "$(of_unit ActiveState) $(of_unit Result) $(of_unit NRestarts)" = "failed exit-code 0" ] ||
        fail "with $1 the unit is $(of_unit ActiveState), $(of_unit Result), restarted $(of_unit NRestarts) times"
    case "$(of_unit ExecMainStatus)" in
        64 | 77 | 78) ;;
        *) fail "with $1 it ends with $(of_unit ExecMainStatus)" ;;
    esac
    echo "$1: failed, without a restart"
}
printf '[mqtt]\nnothing = 1\n' > $config
fails_once "a broken configuration"

# A key that only root can read, without and with LoadCredential=.
fogmux pki server --data /tmp/own --out /etc/fogmux/tls fog.example >/dev/null
chown root:root /etc/fogmux/tls.pem /etc/fogmux/tls.key
chmod 644 /etc/fogmux/tls.pem
chmod 600 /etc/fogmux/tls.key
printf '[tls]\ncertificate_file = "/etc/fogmux/tls.pem"\nkey_file = "/etc/fogmux/tls.key"\n' > $config
fails_once "a key of root"
sed -i 's|"/etc/fogmux/tls.key"|"$CREDENTIALS_DIRECTORY/tls.key"|' $config
mkdir -p /etc/systemd/system/fogmux.service.d
printf '[Service]\nLoadCredential=tls.key:/etc/fogmux/tls.key\n' > /etc/systemd/system/fogmux.service.d/tls.conf
systemctl daemon-reload
systemctl start fogmux || fail "it does not start with a credential"
curl -sS --cacert /tmp/own/pki/ca.pem --resolve fog.example:8443:127.0.0.1 -o /dev/null https://fog.example:8443/healthz ||
    fail "the certificate of the credential is not shown"
[ "$(of_unit ActiveState) $(of_unit NRestarts)" = "active 0" ] || fail "it does not stay up with a credential"
echo "a key by LoadCredential=: shown"
echo "all as it should be"
