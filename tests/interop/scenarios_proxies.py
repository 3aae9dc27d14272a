"""nginx and Caddy in front of the gateway, with the configurations of docs/operating/reverse-proxy.md as they stand but
for ports and files: HTTP/2, WebSocket, event streams, logins by cookie, addresses of clients, MQTT over TLS."""

import asyncio
import os
import re
import signal
import socket
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import patience
from client import PATIENCE, run
from bridges import CLIENTS
from gateway import LISTENERS
from scenarios import expect, require, scenario, until
from scenarios_backup import Administered

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/operating/reverse-proxy.md"
NAME = "fog.example"
USER, PASSWORD = "ada", "the password of ada"
MODULES = Path("/usr/lib/nginx/modules")


def blocks(language: str) -> list[str]:
    """The blocks of code of the page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def put(text: str, **replaced) -> str:
    """Puts something in place of what is in the page, which has to be there."""
    for old, new in replaced.items():
        require(f"the page has {old}", old in text, text)
        text = text.replace(old, str(new))
    return text


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Behind(Administered):
    """A gateway on loopback that believes its proxy, as the page says."""

    def config_text(self):
        proxied = {"mqtt": "proxy_protocol = true\n"}
        listeners = "".join(
            f'[listeners.{name}]\naddress = "127.0.0.1:0"\n{proxied.get(name, "")}' for name in LISTENERS)
        return f"{blocks('toml')[0]}\n{listeners}"


class Proxy:
    """A proxy at work: the ports of HTTPS and, if it has one, of MQTT over TLS, and whom its clients trust."""

    def __init__(self, https: int, ca: Path, mqtts: int | None = None):
        self.https, self.ca, self.mqtts = https, str(ca), mqtts

    async def curl(self, path, *flags, user=USER, password=PASSWORD) -> tuple[str, str]:
        """The status and what came; `%` of what is written out goes before the status."""
        login = ["-u", f"{user}:{password}"] if user else []
        _, out, err = await run(
            "curl", "-sS", "--cacert", self.ca, "--resolve", f"{NAME}:{self.https}:127.0.0.1", *login,
            "-w", "\n%{http_code} %{http_version}", *flags, f"https://{NAME}:{self.https}{path}")
        body, _, status = out.decode().rpartition("\n")
        return status or err.decode(), body


@asynccontextmanager
async def running(*command, cwd, ready, environment=None):
    """A program that is ended with all its children."""
    log = Path(cwd, "log")
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=cwd, stdout=out, stderr=out, start_new_session=True,
            env={**os.environ, **(environment or {})})
        try:
            async def answers():
                require(f"{command[0]} runs", process.returncode is None, log.read_text()[-2000:])
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", ready)) == 0
            await until(f"{command[0]} answers", answers)
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            await patience.within(process.wait(), PATIENCE)


@asynccontextmanager
async def nginx(gateway, place):
    https, mqtts = free_ports(2)
    files = {"/etc/ssl/fogmux/tls.pem": f"{place}/tls.pem", "/etc/ssl/fogmux/tls.key": f"{place}/tls.key"}
    code, out, err = await run(gateway.binary, "pki", "server", NAME, "localhost", "--out", f"{place}/tls", "--data",
                               gateway.data)
    require("pki server", code == 0, out + err)
    http, stream = blocks("nginx")
    http = put(http, **files, **{"listen 443": f"listen 127.0.0.1:{https}",
                                 "127.0.0.1:8080": f"127.0.0.1:{gateway.addresses['http'][1]}"})
    stream = put(stream, **files, **{"listen 8883": f"listen 127.0.0.1:{mqtts}",
                                     "127.0.0.1:1883": f"127.0.0.1:{gateway.addresses['mqtt'][1]}"})
    temporary = "".join(f"{kind}_temp_path {place};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    Path(place, "nginx.conf").write_text(
        f"load_module {MODULES}/ngx_stream_module.so;\ndaemon off; master_process off; pid {place}/pid;\n"
        f"error_log stderr; events {{}}\nhttp {{\naccess_log off;\n{temporary}{http}}}\n{stream}")
    async with running("nginx", "-p", place, "-c", f"{place}/nginx.conf", cwd=place, ready=https):
        yield Proxy(https, Path(gateway.ca), mqtts)


@asynccontextmanager
async def caddy(gateway, place):
    https, http = free_ports(2)
    site = put(blocks("caddyfile")[0], **{"127.0.0.1:8080": f"127.0.0.1:{gateway.addresses['http'][1]}"})
    # Instead of a certificate of a public authority one of its own.
    options = f"{{\nadmin off\nlocal_certs\nskip_install_trust\nhttps_port {https}\nhttp_port {http}\n}}\n"
    Path(place, "Caddyfile").write_text(options + site)
    home = {"XDG_DATA_HOME": f"{place}/data", "XDG_CONFIG_HOME": f"{place}/config", "HOME": place}
    root = Path(place, "data/caddy/pki/authorities/local/root.crt")
    async with running("caddy", "run", "--config", f"{place}/Caddyfile", cwd=place, ready=https, environment=home):
        async def made():
            return root.is_file()
        await until("Caddy's own authority", made)
        yield Proxy(https, root)


PROXIES = {"nginx": nginx, "Caddy": caddy}


@scenario
async def nginx_and_caddy_pass_on_everything_as_the_page_configures_them(binary):
    for name, start in PROXIES.items():
        with tempfile.TemporaryDirectory(prefix="fogmux-proxy-") as place:
            async with Behind(binary) as gateway, start(gateway, place) as proxy:
                await until(f"{name}: the first request", lambda: _answers(proxy))
                await _requests(name, proxy)
                await _events(name, proxy)
                await _websocket(name, proxy)
                await _login(name, proxy)
                await _addresses(name, gateway, proxy)
                if proxy.mqtts is not None:
                    await _mqtt(name, gateway, proxy)
                print(f"    {name}: all of it")


async def _answers(proxy) -> bool:
    return (await proxy.curl("/healthz", user=None))[0].startswith("200")


async def _requests(name, proxy):
    status, _ = await proxy.curl("/topics/plant/1", "-X", "PUT", "-d", "21.5", user=None)
    expect(f"{name}: a client of a proxy is not local", status, "401 2")
    for flag, version in (("--http2", "2"), ("--http1.1", "1.1")):
        status, _ = await proxy.curl("/topics/plant/1", flag, "-X", "PUT", "-d", f"by {version}")
        require(f"{name}: PUT", status in (f"201 {version}", f"204 {version}"), status)
        expect(f"{name}: GET", await proxy.curl("/topics/plant/1", flag), (f"200 {version}", f"by {version}"))
    large = "x" * (1 << 20)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(large)
        file.flush()
        status, _ = await proxy.curl("/topics/plant/large", "-X", "PUT", "--data-binary", f"@{file.name}")
    require(f"{name}: a message of 1 MiB", status.startswith("20"), status)


async def _events(name, proxy):
    """An event arrives while its stream is open, by HTTP/1.1 and by HTTP/2."""
    for flag in ("--http1.1", "--http2"):
        reader = await asyncio.create_subprocess_exec(
            "curl", "-sSN", "--cacert", proxy.ca, "--resolve", f"{NAME}:{proxy.https}:127.0.0.1", flag, "-u",
            f"{USER}:{PASSWORD}", f"https://{NAME}:{proxy.https}/subscribe?filter=live/%23",
            stdout=asyncio.subprocess.PIPE)
        try:
            # The beginning of a stream has come before anything is published.
            require(f"{name} {flag}: it begins", await patience.within(reader.stdout.readline(), PATIENCE))
            for number in range(3):
                status, _ = await proxy.curl("/topics/live/1", "-X", "POST", "-d", f"event {number}")
                require(f"{name}: POST", status.startswith("20"), status)
                line = b""
                while f"event {number}".encode() not in line:
                    line = await patience.within(reader.stdout.readline(), PATIENCE)
                    require(f"{name} {flag}: the stream is open", line)
        finally:
            reader.kill()
            await reader.wait()


async def _websocket(name, proxy):
    """MQTT over WebSocket, by mqtt.js."""
    code, out, err = await run(
        "node", str(HERE / "proxied.mjs"), f"{CLIENTS}/npm/node_modules/mqtt", proxy.ca,
        f"wss://{NAME}:{proxy.https}/mqtt", USER, PASSWORD)
    expect(f"{name}: mqtt.js", (code, out.decode().strip()), (0, "refused without a password, then: 21.5"))
    _ = err


async def _login(name, proxy):
    """The cookie of a login, as a browser gets it."""
    with tempfile.TemporaryDirectory() as home:
        jar, head = f"{home}/jar", f"{home}/head"
        # curl encodes the form.
        status, _ = await proxy.curl("/login", "-D", head, "-c", jar, "--data-urlencode", "user=admin",
                                     "--data-urlencode", "password=the password of admin", user=None)
        require(f"{name}: /login", status.startswith("204"), status)
        cookie = re.search(r"(?im)^set-cookie: (.*)$", Path(head).read_text())[1]
        for word in ("Secure", "HttpOnly", "SameSite"):
            require(f"{name}: {word}", word in cookie, cookie)
        status, body = await proxy.curl("/api/v1/status", "-b", jar, user=None)
        require(f"{name}: the cookie", status == "200 2" and '"version"' in body, status)
        status, body = await proxy.curl("/", "-b", jar, "-H", "Accept: text/html", user=None)
        require(f"{name}: the dashboard", status == "200 2" and "<html" in body, status)
        status, _ = await proxy.curl("/api/v1/status", user=None)
        expect(f"{name}: without it", status, "401 2")
        status, _ = await proxy.curl("/topics/plant/2", "-b", jar, "-X", "PUT", "-d", "1", "-H",
                                     "Origin: https://evil.example", user=None)
        expect(f"{name}: a page of another origin", status, "403 2")
        status, _ = await proxy.curl("/topics/plant/2", "-b", jar, "-X", "PUT", "-d", "1", "-H",
                                     f"Origin: https://{NAME}:{proxy.https}", user=None)
        require(f"{name}: a page of its own", status.startswith("20"), status)


async def _addresses(name, gateway, proxy):
    """The log names the client's address, whatever it says of itself."""
    status, _ = await proxy.curl("/topics/a", "--interface", "127.0.0.77", "-H", "X-Forwarded-For: 203.0.113.9", "-H",
                                 "Forwarded: for=203.0.113.9", user="eve", password="wrong")
    expect(f"{name}: a wrong password", status, "401 2")

    async def logged():
        return re.search(r"login refused.*127\.0\.0\.77|127\.0\.0\.77.*login refused", gateway.whole_log())
    await until(f"{name}: the address in the log", logged)
    require(f"{name}: a forged address", "203.0.113.9" not in gateway.whole_log())


async def _mqtt(name, gateway, proxy):
    """MQTT over TLS that ends at the proxy, with the PROXY protocol behind it."""
    async def publish(password):
        return await run(
            "mosquitto_pub", "-h", "localhost", "-p", str(proxy.mqtts), "--cafile", proxy.ca, "-A", "127.0.0.78", "-u",
            USER, "-P", password, "-q", "1", "-r", "-t", "plant/3", "-m", "over TLS")
    code, out, err = await publish(PASSWORD)
    require(f"{name}: mosquitto_pub", code == 0, out + err)
    expect(f"{name}: its value", (await proxy.curl("/topics/plant/3"))[1], "over TLS")
    code, _, _ = await publish("wrong")
    require(f"{name}: a wrong password", code != 0)

    async def logged():
        return "127.0.0.78" in gateway.whole_log()
    await until(f"{name}: the address in the log", logged)
