"""How the commands of README.md and docs/operating are run: in the order of their page, on a machine where the lines of
systemd.md have installed the service. A command that is not named here is run as it stands and has to succeed.
"""

import json
from dataclasses import dataclass, field

from commands import DATA, RULES

README, OPERATING = "README.md", "docs/operating"


@dataclass(frozen=True)
class Line:
    """A command of a page, by how it begins."""

    says: str = ""
    """A regular expression that its output has to match somewhere."""
    codes: tuple[int, ...] = (0,)
    puts: dict[str, str] = field(default_factory=dict)
    """What a reader puts in place of a part of it."""
    before: str = ""
    """Words before it, in the same shell."""
    after: str = ""
    """Lines after it, which show its effect."""
    is_patient: bool = False
    """Whether it is repeated for a while: the gateway notices changed files within seconds, and starts when it can."""
    elsewhere: str = ""
    """Why it is not run here; before a colon the file of the test that runs it, or does what it would do."""
    shown_by: str = ""
    """A part of that file which does so; without it the file shows nothing of it any more."""


@dataclass(frozen=True)
class Page:
    lines: dict[str, Line] = field(default_factory=dict)
    config: str = ""
    """The configuration of the service."""
    rules: str = ""
    """Its access rules."""
    prepare: str = ""
    """Lines that are run first, while the service runs."""


API, HTTPS = "http://127.0.0.1:8080/api/v1", "https://fog.example:8443/api/v1"
ETAG = f"curl -D - -o file {API}/rules | sed -n 's/^etag: //Ip' | tr -d '\\r'"
SALT = "Crmx7QrRoGqjVE6Y"
HASH = "Q79G2lGg1cCy76WxrRmLiY4jZEkwRv+kWg0NYjEj87RXFkfGUe1WKprhiKK8eIYstNQr5NAGx0MfPRPzdT4IIQ=="
"""Of the password `secret`, as mosquitto_passwd makes it."""
PASSWORDS = f"echo '{{0}}:$7$101${SALT}${HASH}' > {{1}}"
DYNAMIC = json.dumps({
    "defaultACLAccess": {"publishClientSend": False, "publishClientReceive": True, "subscribe": False,
                         "unsubscribe": True},
    "clients": [{"username": "ada", "salt": SALT, "password": HASH, "iterations": 101,
                 "roles": [{"rolename": "reader"}]}],
    "roles": [{"rolename": "reader", "acls": [{"acltype": "subscribePattern", "topic": "#", "allow": True}]}]})
BACKUP = "/mnt/usb/fogmux-2026-11-26.tar"
OWN = "--data own --free-ports"
STOPPED = "timeout --preserve-status 2"
"""Before a command that does not end by itself; a gateway ends in order then."""

DOOR = f"cp {DATA}/pki/ca.pem ca.pem; echo correct-horse > password.txt"
"""What is there before the commands of a door: the authority, and a file with the password that is typed."""


def listeners(**addresses: str) -> str:
    return "".join(f'[listeners.{name}]\naddress = {address}\n' for name, address in addresses.items())


CONTAINER = Line(elsewhere="xtask/src/dist/container.sh: runc starts the image there, with the same settings",
                 shown_by="run --bundle bundle ")
PACKAGE = Line(elsewhere="xtask/src/dist/check.sh: by dpkg, in a Debian of its own",
               shown_by="inside dpkg --install /root/new.deb")
ARCHIVE = Line(elsewhere="xtask/src/dist/check.sh: in a Debian of its own", shown_by="inside /root/new/install.sh")
ZEROCONF = "tests/delivery/operation/mdns.rs: it browses with python-zeroconf"
BROWSES = '"_secure-mqtt._tcp.local."'

COMMON = {
    "cargo install ": Line(elsewhere="crates/fogmux/tests/cli/support.rs: it builds the program that is run there",
                           shown_by='env!("CARGO_BIN_EXE_fogmux")'),
    "cargo run --release -- demo": Line(puts={"cargo run --release --": "fogmux"}),
    "cargo run --release": Line(elsewhere="tests/interop/gateway.py: it builds the program that is run there",
                                shown_by='"serve"'),
    "cargo xtask cross": Line(elsewhere="it is a test itself, which needs compilers for other machines"),
    "cargo xtask dist": Line(elsewhere="xtask/src/dist/check.rs: it makes the same packages of a debug build",
                             shown_by="Made::of(tree, &release, &program, &place)"),
    "cargo xtask test ": Line(elsewhere="it is a test itself"),
    "cargo xtask size": Line(elsewhere="it is a measurement, which builds two releases for minutes"),
    "podman ": CONTAINER,
    "python tests/interop ": Line(elsewhere="tests/interop/scenarios_dashboard.py: it is a test itself, of this suite",
                                  shown_by="def the_gateway_is_small_with_the_dashboard_open("),
    "systemctl edit ": Line(elsewhere="it opens an editor"),
    "systemctl status ": Line(elsewhere="crates/fogmux/tests/cli/command_line.rs: systemd is told there what it shows",
                              shown_by="STATUS=the last reload "),
    "systemd-analyze ": Line(elsewhere="xtask/src/deploy.rs: with the unit of the packages",
                             shown_by='command("systemd-analyze", &arguments)'),
    "timedatectl ": Line(elsewhere="crates/fogmux/src/doctor/clock.rs: the doctor names the same; it sets this machine",
                         shown_by='"timedatectl set-ntp true"'),
}

PAGES = {
    README: Page(
        prepare=f"""
            fogmux pub -r mqtt://127.0.0.1/room/temperature 21.5
            {PASSWORDS.format("bob", "passwd")}
            printf 'user bob\\ntopic read plant/#\\n' > acl
            echo meter-9:0123456789abcdef0123456789abcdef > psk""",
        lines={
            "fogmux bench ": Line(elsewhere="tests/generator/readme.rs: each runs there, shortened, or is named",
                                  shown_by='strip_prefix("    fogmux bench ")'),
            "fogmux get --oscore": Line(says="21.5", is_patient=True),
            "fogmux import mosquitto": Line(says="1 users imported"),
            "fogmux serve ": Line(puts={"FILE": "/etc/fogmux/fogmux.toml", "--data DIR": OWN}, before=STOPPED,
                                  is_patient=True),
            "fogmux check FILE": Line(puts={"FILE": "/etc/fogmux/fogmux.toml"}),
            "fogmux check --defaults": Line(says=r"\[listeners\.mqtt\]"),
            "fogmux doctor ": Line(puts={"FILE": "/etc/fogmux/fogmux.toml", "DIR": DATA}, says="0 problems"),
            "fogmux backup ": Line(puts={"FILE": "backup.tar"}),
            "fogmux restore ": Line(puts={"FILE": "backup.tar --data restored"}, after="ls restored/users.toml"),
            "fogmux acl test ": Line(puts={"USER": "bob", "read|write": "read", "TOPIC": "plant/1"}, says="plant/#"),
        }),
    f"{OPERATING}/acme.md": Page(
        config='[listeners.http]\naddress = "0.0.0.0:8080"\nallow_plaintext = true\nanonymous = false\n',
        prepare=f"cp {DATA}/pki/ca.pem /etc/fogmux/step-root.pem",
        lines={
            "openssl x509 -in": Line(elsewhere="tests/interop/scenarios_acme.py: Pebble issues the certificate",
                                      shown_by="certificate-and-key"),
            "sudo nft add rule ": Line(
                after="$NEIGHBOUR curl -q -s -w '%{http_code}' http://192.0.2.10/.well-known/acme-challenge/none",
                says="404"),
        }),
    f"{OPERATING}/api.md": Page(
        config='[auth]\napi_changes = true\n[listeners.https]\naddress = "0.0.0.0:8443"\n',
        prepare="""
            sudo fogmux pki server fog.example
            sudo fogmux passwd admin
            sudo cat /var/lib/fogmux/pki/ca.pem > ca.pem
            sudo systemctl reload fogmux
            mosquitto_pub -r -t plant/line-1/state -m on
            mosquitto_sub -i page -c -q 1 -t 'plant/#' > followed 2>&1 &
            while ! grep -q on followed; do sleep 0.05; done
            printf '[[allow]]\\nuser = "alice"\\nread = ["plant/#"]\\n' > acl.toml""",
        lines={
            f"curl {API}/status": Line(says='"version"'),
            f"curl '{API}/topics": Line(says='"topics"'),
            f"curl {API}/listeners": Line(says='"mqtts"'),
            f"curl {API}/clients": Line(says='"page"'),
            f"curl -X DELETE {API}/clients/": Line(puts={"17": f"$(curl {API}/clients | jq .clients[0].id)"}),
            f"curl {API}/sessions": Line(says='"page"'),
            f"curl {API}/sessions/3/": Line(puts={"3": f"$(curl {API}/sessions | jq .sessions[0].id)"}, says="plant/#"),
            f"curl -X DELETE {API}/sessions/": Line(puts={"3": f"$(curl {API}/sessions | jq .sessions[0].id)"}),
            f"curl -H 'Content-Type: application/json' {API}/rules/test": Line(says="is not a user of the file"),
            f"curl -H 'Content-Type: application/json' {API}/bench": Line(
                puts={'"seconds":5,"repeat":3': '"seconds":1,"repeat":1'}, says='"submitted"'),
            f"curl {API}/bench/1/report.md": Line(says="mqtt", is_patient=True),
            f"curl {API}/bench/1": Line(says='"progress"'),
            f"curl --cacert ca.pem -u admin {HTTPS}/status": Line(says='"version"', is_patient=True),
            "curl --cacert ca.pem -u admin -X POST -O -J": Line(after="fogmux restore --check fogmux-*.tar"),
            "curl --cacert ca.pem -u admin -X PUT -H 'Content-Type: application/json'": Line(
                after=f"grep alice {DATA}/users.toml"),
            "curl --cacert ca.pem -u admin -X PUT -H 'Content-Type: application/toml'": Line(
                puts={'"0123456789abcdef"': f"'\"$({ETAG})\"'"},
                after=f"cmp acl.toml {RULES}"),
        }),
    f"{OPERATING}/authority.md": Page(
        prepare="sudo fogmux pki client pump-7",
        lines={
            "sudo fogmux pki rollover begin": Line(says="^begun"),
            "sudo fogmux pki rollover switch": Line(says="^switched"),
            "sudo fogmux pki rollover status": Line(says="rollover switch"),
            "sudo fogmux pki rollover finish": Line(says="^finished"),
        }),
    f"{OPERATING}/backup.md": Page(
        prepare="""
            mkdir /mnt/usb
            fogmux pub -r mqtt://127.0.0.1/greeting hello""",
        lines={
            "sudo fogmux backup --data": Line(after="zstd -dc ~/fogmux.tar.zst | tar t | grep SHA256SUMS"),
            "tar xf ": Line(puts={"FILE": BACKUP}, says="OK"),
            "sudo fogmux restore ": Line(puts={"/root/": ""}, after="ls fogmux-config/fogmux.toml"),
            "fogmux restore ": Line(puts={"FILE": BACKUP}),
            "sudo systemctl start ": Line(after="fogmux get http://127.0.0.1/greeting", says="^hello$"),
            "/bin/sh -c 'fogmux backup": Line(after="ls /mnt/usb/fogmux-$(date +%F).tar"),
        }),
    f"{OPERATING}/coap.md": Page(
        config=listeners(coaps='"192.0.2.10:5684"', coaps_tcp='"192.0.2.10:5684"'),
        prepare=DOOR,
        lines={
            "coap-client coap": Line(says="21.5"),
            "coap-client -s 2": Line(says="21.5"),
            "coap-client-openssl -u meter-4": Line(says="21.6|^$", is_patient=True),
            'coap-client-openssl -u meter-4 -k "$(cat meter-4.txt)" coaps': Line(says="21.6"),
            "fogmux get --psk-id": Line(says="21.6", is_patient=True),
            "coap-client-openssl -c pump-7.pem -j pump-7.key -C ca.pem -m put": Line(is_patient=True),
            "coap-client-openssl -c pump-7.pem -j pump-7.key -C ca.pem coaps": Line(says="21.7"),
            "fogmux get --ca": Line(says="21.7", is_patient=True),
            "fogmux pub --oscore": Line(is_patient=True),
            "fogmux get --oscore": Line(says="21.8"),
        }),
    f"{OPERATING}/containers.md": Page(
        lines={
            "fogmux serve ": CONTAINER,
            "skopeo ": Line(elsewhere="xtask/src/dist/container.sh: it reads the same fields of the layout",
                            shown_by='.annotations["org.opencontainers.image.licenses"]'),
        }),
    f"{OPERATING}/discovery.md": Page(
        config='[listeners.coap]\naddress = "[::]:5683"\ndual_stack = true\nallow_plaintext = true\n'
               'allow_remote_anonymous = true\nmulticast = true\n[coap.multicast]\nleisure = "1s"\n',
        rules='[[allow]]\nanonymous = true\nboth = "greeting"\n',
        prepare="fogmux pub -r mqtt://127.0.0.1/greeting hello",
        lines={
            "coap-client ": Line(says="fogmux.topics", before="$NEIGHBOUR", puts={"-B 6": "-B 2"},
                                 is_patient=True),
            "avahi-browse ": Line(elsewhere=f"{ZEROCONF}; Avahi needs its daemon and D-Bus", shown_by=BROWSES),
            "dns-sd ": Line(elsewhere=f"{ZEROCONF}; this program is a part of macOS", shown_by=BROWSES),
        }),
    f"{OPERATING}/doctor.md": Page(
        prepare="touch fogmux.toml",
        lines={
            "sudo fogmux doctor": Line(says="0 problems"),
            "fogmux doctor --config": Line(puts={"DIR": "own"}, codes=(69,), says="taken by process"),
            "fogmux doctor --json": Line(says='"level"', codes=(0, 69)),
            "fogmux doctor --strict": Line(codes=(0, 69)),
        }),
    f"{OPERATING}/http.md": Page(
        config=listeners(https='"192.0.2.10:8443"'),
        prepare=DOOR,
        lines={
            "curl http://127.0.0.1:8080/topics/plant/1": Line(says="^21.5$"),
            "curl -N 'http://127.0.0.1:8080/subscribe": Line(puts={"-N": "-N -m 2"}, codes=(28,), says="21.5"),
            "curl --cacert ca.pem -u alice:correct-horse -X PUT": Line(is_patient=True),
            "curl --cacert ca.pem -u alice:correct-horse https": Line(says="^21.6$"),
            "curl --http2": Line(says="^21.7$"),
            "fogmux get --http 3 --ca ca.pem -u": Line(says="^21.6$"),
            "fogmux get --http 3 --ca ca.pem --cert": Line(says="^21.7$"),
        }),
    f"{OPERATING}/install.md": Page(
        prepare="""
            mkdir -p archive/usr/bin archive/etc/fogmux
            cp deploy/install.sh archive
            touch archive/usr/bin/fogmux archive/etc/fogmux/fogmux.toml""",
        lines={
            "sudo apt install": PACKAGE,
            "apt ": PACKAGE,
            "tar xzf ": ARCHIVE,
            "sudo ./install.sh": ARCHIVE,
            "DESTDIR=": Line(before="cd archive;", puts={"/somewhere": "~/somewhere"},
                             after="ls ~/somewhere/usr/bin/fogmux ~/somewhere/etc/fogmux/fogmux.toml"),
            "sha256sum ": Line(elsewhere="xtask/src/dist/check.rs: beside the packages",
                               shown_by='command("sha256sum"'),
            "fogmux get ": Line(says="^hello$"),
            "grep -E": Line(says="(?m)^Pss_Anon:"),
        }),
    f"{OPERATING}/listeners.md": Page(
        lines={
            "fogmux serve --json": Line(puts={"--json": f"--json {OWN}"}, before=STOPPED, says='"listeners"',
                                         is_patient=True),
        }),
    f"{OPERATING}/logs.md": Page(
        config='[log]\nformat = "json"\n',
        prepare="mosquitto_pub -u ada -P wrong -t a -m 1 || true",
        lines={
            "journalctl -u fogmux -p ": Line(says="login refused", is_patient=True),
            "journalctl -u fogmux -o cat | jq": Line(puts={"192.0.2.7": "127.0.0.1"}, says="login refused"),
        }),
    f"{OPERATING}/migrating.md": Page(
        prepare=f"""
            mkdir -p /etc/mosquitto /var/lib/mosquitto
            printf 'listener 1883\\npassword_file %s\\nacl_file %s\\n' /etc/mosquitto/passwd /etc/mosquitto/acl \\
                > /etc/mosquitto/mosquitto.conf
            {PASSWORDS.format("ada", "/etc/mosquitto/passwd")}
            printf 'user ada\\ntopic read #\\n' > /etc/mosquitto/acl
            echo '{DYNAMIC}' > /var/lib/mosquitto/dynamic-security.json
            mosquitto_pub -r -t plant/1/temperature -m 21.5""",
        lines={
            # The other way to come from Mosquitto: on another gateway, which has no users and rules.
            "fogmux import mosquitto --dynamic": Line(before=f"rm {RULES} {DATA}/users.toml;",
                                                      says="1 users imported"),
            "mosquitto_sub ": Line(puts={"-t '#'": "-t '#' -u ada -P secret -C 1 -W 10"}, is_patient=True,
                                   says="plant/1/temperature 21.5"),
        }),
    f"{OPERATING}/monitoring.md": Page(
        lines={
            "promtool ": Line(elsewhere="tests/delivery/operation/monitoring.rs: with the files of deploy/monitoring",
                              shown_by='promtool(&["check", "rules", ALERTS]'),
        }),
    f"{OPERATING}/mqtt.md": Page(
        config=listeners(mqtts='"192.0.2.10:8883"', https='"192.0.2.10:8443"')
        + '[listeners.mqtts_psk]\nkind = "mqtts"\naddress = "192.0.2.10:8884"\nprofile = "psk"\n',
        prepare=DOOR,
        lines={
            "mosquitto_pub ": Line(is_patient=True),
            "mosquitto_sub -q 1": Line(says="^21.5$"),
            "mosquitto_sub -h fog.example -p 8883 --cafile ca.pem -u": Line(says="^21.6$"),
            "mosquitto_sub -h fog.example -p 8884": Line(says="^21.7$"),
            "mosquitto_sub -h fog.example -p 8883 --cafile ca.pem --cert": Line(says="^21.8$"),
            "fogmux get ws://": Line(says="^21.5$"),
            "fogmux get --ca ca.pem -u": Line(says="^21.6$"),
            "fogmux get --ca ca.pem --cert": Line(says="^21.8$"),
        }),
    f"{OPERATING}/profiles.md": Page(
        config="".join(f'[listeners.{name}]\nkind = "{kind}"\naddress = "192.0.2.10:{port}"\nprofile = "{profile}"\n'
                       for name, kind, port, profile in (
                           ("mqtts", "mqtts", 8883, "modern"), ("mqtts_psk", "mqtts", 8884, "psk"),
                           ("mqtts_high", "mqtts", 8885, "high"), ("coaps", "coaps", 5684, "modern"))),
        prepare=f"cp {DATA}/pki/ca.pem ca.pem",
        lines={
            "mosquitto_pub ": Line(is_patient=True),
            "mosquitto_sub ": Line(says="^21.5$", is_patient=True),
            "openssl s_client": Line(says="TLSv1.3"),
            "coap-client-openssl ": Line(says="21.5", is_patient=True),
            "fogmux get --oscore": Line(says="21.5", is_patient=True),
        }),
    f"{OPERATING}/systemd.md": Page(
        lines={
            "fogmux check --data": Line(
                before="export CREDENTIALS_DIRECTORY=$PWD; fogmux pki server --data own --out tls fog.example;"),
            "fogmux check --reload FILE": Line(puts={"FILE": "/etc/fogmux/fogmux.toml"}),
            "sudo systemctl reload": Line(
                after="until journalctl -u fogmux | grep 'are read again'; do sleep 0.1; done"),
        }),
    f"{OPERATING}/xmpp.md": Page(
        config='[xmpp]\ndomain = "fog.example"\n'
        + listeners(xmpp='["127.0.0.1:5222", "192.0.2.10:5222"]', xmpps='"192.0.2.10:5223"'),
        prepare=DOOR,
        lines={
            "fogmux get --ca ca.pem --domain": Line(says="^21.5$"),
            "fogmux pub --ca": Line(is_patient=True),
            "fogmux get --ca ca.pem -u": Line(says="^21.6$"),
            "fogmux get --ca ca.pem --cert": Line(says="^21.7$"),
            "openssl s_client": Line(says="Verification: OK"),
        }),
    f"{OPERATING}/troubleshooting.md": Page(
        rules='[[allow]]\nuser = "ada"\nread = ["plant/#"]\n[[allow]]\nanonymous = true\nboth = "open/#"\n',
        lines={
            "curl ": Line(says="ready"),
            "fogmux passwd ": Line(puts={"NAME": "ada"}),
            "sudo fogmux acl test ada write": Line(codes=(77,), says="no rule"),
            "fogmux acl test ada read": Line(says="allowed"),
            "fogmux pub -r": Line(puts={"-r": "-r mqtt://127.0.0.1/open/1 21.5"}),
            "fogmux doctor --json": Line(says='"level"'),
        }),
}
