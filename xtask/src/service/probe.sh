# Measures over the API of the gateway that systemd has started, in its unit: under its filter of system calls and all
# its other restrictions, which the measuring process inherits.
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
echo "all as it should be"
