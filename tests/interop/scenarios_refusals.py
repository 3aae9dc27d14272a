"""Refused actions: the log, the administration API and `fogmux acl test` say the same of each, whatever the door."""

import json
import re
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import paho.mqtt.client as paho
from aiocoap.numbers import codes

from access import DENIED, MQTT_311, PAHO_TLS, Row, Warden, is_one_of, named, variant
from client import PATIENCE, Follower, Getter, Publisher, Refused, run
from clients_coap import Aiocoap, Libcoap
from clients_http import REQUESTS, STREAMS
from clients_mqtt import MOSQUITTO, PAHO, TCP, Connection
from clients_xmpp import Slixmpp, SlixmppDirect
from keyring import Authority, LockedGateway
from requests_http import H1
from scenarios import expect, require, scenario, until

TEXT = "text/plain;charset=utf-8"
DOORS = ("mqtt", "coap", "http", "xmpp")
VERSIONS = {"mosquitto 3.1.1": MQTT_311}
NO_RULE, BUILT_IN = "refused: no rule allows it", "refused by the built-in rule that nobody writes to $SYS"
LINE = re.compile(
    r"fogmux::audit: action refused peer=(?P<peer>\S+) port=(?P<port>\d+) door=(?P<door>\w+) "
    r'principal="(?P<identity>[^"]*)" client="(?P<client>[^"]*)" action=(?P<action>\w+) topic="(?P<topic>[^"]*)" '
    r"decision=(?P<reason>.*) suppressed=(?P<suppressed>\d+) suppressed_others=(?P<others>\d+)$", re.MULTILINE)
RULE = re.compile(r"refused by (?P<file>[^:]+):(?P<line>\d+): .")


@dataclass(frozen=True, order=True)
class Refusal:
    """A refused action and its reason. `file` and `line` are empty if no rule allows it."""

    identity: str
    door: str
    action: str
    topic: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Told:
    """A refusal as one place tells it, with the rest that it has to say as the others do."""

    refusal: Refusal
    reason: str
    client: str
    address: str
    groups: tuple[str, ...] = field(default=(), compare=False)
    """Those that the credential gave, which the log does not name."""


def user(row) -> str:
    """The client's user. No other client has it: the log has one line for each user, door, action and rule."""
    return re.sub(r"[ ./]", "-", row.client.name)


ROWS = [
    *[Row("password", client) for client in named(PAHO, "paho 3.1.1/tcp", "paho 5/tcp")],
    *[Row("password", client) for client in MOSQUITTO],
    Row("oscore", Aiocoap),
    Row("oscore", variant(Aiocoap, "aiocoap tcp", scheme="coap+tcp")),
    Row("psk", variant(Libcoap, "libcoap openssl dtls", program="coap-client-openssl", scheme="coaps")),
    *[Row("password", client)
      for client in named(REQUESTS, "curl h1", "curl h2", "httpx h1", "httpx h2", "aioquic h3")],
    Row("password", variant(STREAMS[0], "curl h1 sse", version=H1, flags=("--http1.1",))),
    Row("password", STREAMS[0]),
    Row("password", variant(Slixmpp, "slixmpp", mechanism="SCRAM-SHA-256")),
]
# None of them is in the users file.
UNLISTED_ROWS = [
    *[Row("token", client) for client in named(PAHO_TLS, "paho 5/tls")],
    *[Row("certificate", client) for client in named(MOSQUITTO, "mosquitto 5/tls")],
    *[Row("token", client) for client in named(REQUESTS, "httpx h2")],
    *[Row("certificate", client) for client in named(REQUESTS, "curl h2")],
    Row("certificate", variant(Libcoap, "libcoap openssl dtls", program="coap-client-openssl", scheme="coaps")),
    Row("certificate", variant(SlixmppDirect, "slixmpp external", mechanism="EXTERNAL")),
]
OTHER_ROWS = [row for row in ROWS if row.client.name in ("paho 5/tcp", "aiocoap", "httpx h1", "slixmpp")]


class Rules:
    """An access file that refuses in several ways, and the lines on which its filters stand."""

    def __init__(self):
        self.text, self.lines = "", {}
        # By a placeholder, by the group, and by a rule of the door alone.
        self._rule("deny", ["authenticated = true"], "get", "read", "open/get/closed/%u")
        self._rule("deny", ['group = "field"'], "put", "write", "open/put/closed/#")
        self._rule("deny", ['group = "field"'], "many", "read", "open/many/closed/#")
        for door in DOORS:
            who = ['group = "field"', f'door = "{door}"']
            self._rule("deny", who, f"follow {door}", "read", "open/follow/closed/+")
        # On MQTT it denies the own identifier, elsewhere everybody's.
        self._rule("deny", ['group = "field"'], "identifier", "write", "open/identifier/%c")
        self._rule("allow", ['group = "field"'], "open", "both", "open/#")
        self._rule("allow", ['user = "warden"'], "warden", "both", "$fogmux/admin")

    def _rule(self, effect, who, name, action, topic):
        lines = [f"[[{effect}]]", *who, f'{action} = ["{topic}"]', ""]
        self.lines[name] = self.text.count("\n") + len(lines) - 1
        self.text += "\n".join(lines) + "\n"

    def place(self, what, door) -> tuple[str, int]:
        """The file and the line of the rule that denies it."""
        return "acl.toml", self.lines[f"{what} {door}" if what == "follow" else what]


class Guarded(LockedGateway):
    """A user for each client, with the credential that it shows."""

    def __init__(self, binary, rows):
        super().__init__(binary, contexts=[(user(row), row.label) for row in rows if row.kind == "oscore"])
        self.rows, self.rules = rows, Rules()
        self.ring.psks = {user(row): b"0123456789abcdef" for row in rows if row.kind == "psk"}

    async def furnish(self):
        await super().furnish()
        for name in map(user, self.rows):
            await self.fogmux("passwd", name, "--group", "field", stdin=f"{name}'s password\n".encode())
        (Path(self.data) / "acl.toml").write_text(self.rules.text)

    def client(self, row):
        return row.client(self, self.ring.right(row.kind, user(row), row.label))

    async def tested(self, told: Told, who: str) -> dict:
        """What `fogmux acl test` says of it."""
        refusal = told.refusal
        client = ["--client", told.client] if told.client else []
        client += [word for group in told.groups for word in ("--group", group)]
        code, out, err = await run(
            self.binary, "acl", "test", who, refusal.action, refusal.topic, "--door", refusal.door, *client, "--json",
            "--data", self.data)
        require("acl test refuses it", code == 77, f"exit code {code}: {(out + err).decode()}")
        return json.loads(out)


class Unlisted(Guarded):
    """Identities that only their tokens and certificates know, with a group."""

    def client(self, row):
        credential = super().client(row).credential if row.kind != "token" else replace(
            self.ring.right("token", user(row), row.label), token=self.ring.token(user(row), groups=["field"]))
        return row.client(self, credential)

    async def furnish(self):
        await LockedGateway.furnish(self)
        data = Path(self.data)
        authority = Authority.load(data / "pki")
        names = [user(row) for row in self.rows if row.kind == "certificate"]
        self.ring.certificates |= {name: authority.client(self.ring.place, name, name) for name in names}
        (data / "certificates.toml").write_text("".join(
            f'[[certificate]]\ncommon_name = "{name}"\ngroups = ["field"]\n' for name in names))
        (data / "acl.toml").write_text(self.rules.text)


async def follow_many(client, topic_filter):
    """Follows all topics of a filter."""
    if isinstance(client, Aiocoap):
        answer = await client.observe(
            client.message(codes.GET, ["ps"], [f"filter={topic_filter}"]), lambda answer: None)
        if not answer.code.is_successful():
            raise Refused(answer.code.dotted)
    elif isinstance(client, Slixmpp):
        form = client.client.plugin["xep_0004"].make_form(ftype="submit")
        form.add_field(var="FORM_TYPE", ftype="hidden", value="http://jabber.org/protocol/pubsub#subscribe_options")
        form.add_field(var="{urn:fogmux:0}filter", value="true")
        await client.ask(client.pubsub.subscribe(client.service, topic_filter, options=form, timeout=PATIENCE))
    else:
        await client.follow(topic_filter)


def deeds(gateway, client, name):
    """All that the client can do, each where a rule denies it and where no rule allows it."""
    can = []
    if isinstance(client, Publisher):
        can.append(("put", "write", "", partial(publish, client)))
    if isinstance(client, Getter):
        can.append(("get", "read", "", client.get))
    if isinstance(client, Follower):
        can.append(("follow", "read", "", client.follow))
        can.append(("many", "read", "/#", partial(follow_many, client)))
    for what, action, end, attempt in can:
        closed, elsewhere = f"open/{what}/closed/{name}{end}", f"elsewhere/{what}/{name}{end}"
        yield Refusal(name, client.door, action, closed, *gateway.rules.place(what, client.door)), attempt, closed
        yield Refusal(name, client.door, action, elsewhere), attempt, elsewhere


def other_deeds(gateway, client, name):
    """Requests that ask for a right in another way, and rules of another kind."""
    def refusal(action, topic, *place):
        return Refusal(name, client.door, action, topic, *place)

    def elsewhere(what):
        return refusal("write", f"elsewhere/{what}")
    yield elsewhere("clear"), client.clear, "elsewhere/clear"
    yield refusal("write", "$SYS/x"), partial(publish, client), "$SYS/x"
    # The rules apply to the filter of a shared subscription.
    topics = f"open/many/closed/{name}/#"
    place = gateway.rules.place("many", client.door)
    yield refusal("read", topics, *place), partial(follow_many, client), f"$share/group/{topics}"
    own = client.connection.client_id if client.door == "mqtt" else "anybody"
    topic = f"open/identifier/{own}"
    yield (refusal("write", topic, *gateway.rules.place("identifier", client.door)),
           partial(publish, client), topic)
    match client.door:
        case "mqtt":
            will = {"topic": "elsewhere/will", "payload": b"refused", "qos": 1}
            dying = Connection(gateway, paho.MQTTv5, TCP, client_id=own, credential=client.credential, will=will)
            yield elsewhere("will"), lambda topic: dying.open(), "elsewhere/will"
        case "coap":
            yield elsewhere("event"), partial(publish, client, retain=False), "elsewhere/event"
            for code in (codes.GET, codes.FETCH):
                topics = f"elsewhere/{code.name}/#"
                yield refusal("read", topics), partial(listing, client, code), topics
        case "http":
            yield elsewhere("event"), partial(publish, client, retain=False), "elsewhere/event"
            yield elsewhere("line"), partial(line_of_many, client), "elsewhere/line"
            yield refusal("read", "elsewhere/head"), partial(head, client), "elsewhere/head"
            yield refusal("read", "$fogmux/admin"), partial(administer, client), "$fogmux/admin"
        case "xmpp":
            for what, request in (("create", client.pubsub.create_node), ("delete", client.pubsub.delete_node)):
                yield elsewhere(what), partial(of_node, client, request), f"elsewhere/{what}"


async def publish(client, topic, retain=True):
    await client.publish(topic, b"refused", TEXT, retain)


async def listing(client, code, topic_filter):
    answer = await client.request(client.message(code, ["ps"], [f"filter={topic_filter}"]))
    if not answer.code.is_successful():
        raise Refused(answer.code.dotted)


async def head(client, topic):
    status, _, _ = await client.request("HEAD", f"/topics/{topic}")
    if status != 200:
        raise Refused(str(status))


async def administer(client, _):
    status, _, _ = await client.request("GET", "/api/v1/refusals")
    if status != 200:
        raise Refused(str(status))


async def line_of_many(client, topic):
    line = json.dumps({"topic": topic, "payload": "refused"}).encode()
    _, _, body = await client.request("POST", "/publish", [("content-type", "application/x-ndjson")], line + b"\n")
    status = json.loads(body.splitlines()[0])["status"]
    if status >= 400:
        raise Refused(str(status))


async def of_node(client, request, node):
    await client.ask(request(client.service, node, timeout=PATIENCE))


async def refused(client, action, attempt):
    try:
        await attempt
    except Refused as refusal:
        if action == "write" and MQTT_311 in (getattr(client, "version", None), VERSIONS.get(client.name)):
            # It has no way to say no to a PUBLISH but to end the connection ([MQTT-3.3.5-2]).
            await client.open()
        else:
            # Version 3.1.1 has no other code for a subscription.
            require(client.name, is_one_of(refusal.code, (*DENIED[client.door], "0x80")), f"got {refusal.code}")
    else:
        require(f"{client.name} is refused", False)


async def provoke(gateway, row, deeds) -> list[Refusal]:
    client, wanted = gateway.client(row), []
    await client.open()
    for refusal, attempt, topic in deeds(gateway, client, user(row)):
        await refused(client, refusal.action, attempt(topic))
        wanted.append(refusal)
    await client.close()
    return sorted(wanted)


def of_rule(refusal: Refusal, reason: str) -> Refusal:
    rule = RULE.match(reason)
    return replace(refusal, file=rule["file"], line=int(rule["line"])) if rule else refusal


def logged(gateway, name) -> list[Told]:
    gateway.log.flush()
    lines = [line for line in LINE.finditer(Path(gateway.log.name).read_text()) if line["identity"] == name]
    return sorted((Told(
        of_rule(Refusal(name, line["door"], line["action"].lower(), line["topic"]), line["reason"]),
        line["reason"], line["client"], f"{line['peer']}:{line['port']}") for line in lines), key=by_refusal)


def by_refusal(told: Told) -> Refusal:
    return told.refusal


def listed(gateway, entries, name) -> list[Told]:
    """The entries of the API, which are what the dashboard shows."""
    file = str(Path(gateway.data) / "acl.toml")
    found = []
    for entry in entries:
        action = entry.get("action")
        if action is None or action["identity"] != name:
            continue
        expect("its kind and counts", (entry["kind"], entry["count"], entry["others"]), ("action", 1, 0))
        expect("the file", action.get("file", file), file)
        found.append(Told(
            Refusal(name, entry["door"], action["action"], action["topic"], Path(action.get("file", "")).name,
                    action.get("line", 0)), entry["reason"], entry.get("client", ""), entry["address"],
            tuple(action.get("groups", ()))))
    return sorted(found, key=by_refusal)


async def explained(binary, rows, deeds, house=Guarded):
    """Every refusal is the expected one in the log and in the API, and the rules when they are tested say the same."""
    async with house(binary, rows) as gateway:
        wanted = {user(row): await provoke(gateway, row, deeds) for row in rows}
        warden = Warden(gateway, gateway.ring.right("password", "warden", ""))
        await warden.open()
        _, _, body = await warden.request("GET", "/api/v1/refusals")
        entries = json.loads(body)["refusals"]
        # The log is written by a thread.
        await until("the lines of the log", lambda: all_logged(gateway, wanted))
        for row in rows:
            name = user(row)
            log, api = logged(gateway, name), listed(gateway, entries, name)
            expect(f"the log of {name}", [told.refusal for told in log], wanted[name])
            expect(f"the API of {name}", api, log)
            for told in api:
                await is_tested(gateway, warden, row, told)
        await warden.close()
        print(f"  {sum(map(len, wanted.values()))} refusals of {len(rows)} clients", flush=True)


async def all_logged(gateway, wanted):
    return all(len(logged(gateway, name)) >= len(refusals) for name, refusals in wanted.items())


async def is_tested(gateway, warden, row, told):
    """The rule is tested for the user, for the credential, and as the dashboard does."""
    refusal = told.refusal
    file = str(Path(gateway.data) / refusal.file) if refusal.file else None
    wanted = {"allowed": False, "text": told.reason, "file": file, "line": refusal.line or None}
    if not refusal.file:
        expect("the reason", told.reason, BUILT_IN if refusal.topic.startswith("$SYS/") else NO_RULE)
    for who in [refusal.identity, *([f"{row.kind}:{refusal.identity}"] if row.kind in ("psk", "oscore") else [])]:
        answer = await gateway.tested(told, who)
        expect(f"acl test {who}", {key: answer[key] for key in (*wanted, "user", "topic")},
               {**wanted, "user": refusal.identity, "topic": refusal.topic})
        require("a note of an identity in no file", bool(answer["note"]) == isinstance(gateway, Unlisted), answer)
    question = {key: value for key, value in asdict(refusal).items() if key not in ("file", "line")}
    question |= {"groups": told.groups} if told.groups else {}
    status, _, body = await warden.request(
        "POST", "/api/v1/rules/test", [("content-type", "application/json")],
        json.dumps({**question, **({"client": told.client} if told.client else {})}).encode())
    expect("the status of rules/test", status, 200)
    answer = json.loads(body)
    expect("rules/test", {key: answer.get(key) for key in wanted}, wanted)


@scenario
async def refusals_are_the_same_in_log_and_api_and_acl_test(binary):
    await explained(binary, ROWS, deeds)


@scenario
async def refusals_of_other_requests_are_the_same_in_log_and_api_and_acl_test(binary):
    await explained(binary, OTHER_ROWS, other_deeds)


@scenario
async def refusals_of_identities_that_are_in_no_file_are_the_same_in_log_and_api_and_acl_test(binary):
    await explained(binary, UNLISTED_ROWS, deeds, Unlisted)
