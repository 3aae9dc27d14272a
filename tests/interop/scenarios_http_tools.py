"""HTTP as foreign tools see it: an OpenAPI validator, schemathesis, Prometheus' parsers, a browser on another page."""

import asyncio
import json
import os
import sys
from pathlib import Path

from openapi_spec_validator import validate
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from clients_http3 import Aioquic
from gateway import Gateway
from patience import within
from scenarios import expect, require, scenario

HERE = Path(__file__).parent
BUDGET_SECONDS = int(os.environ.get("FOGMUX_SCHEMATHESIS_SECONDS", "20"))
SEED = os.environ.get("FOGMUX_SCHEMATHESIS_SEED", "1")
"""The same requests in every run; another seed finds others."""

EVIL = "evil.example:8080"
ROUTES = [("GET", path) for path in ("/", "/topics/a", "/subscribe?filter=a", "/mqtt", "/.well-known/coap",
                                     "/openapi.json", "/healthz", "/readyz", "/metrics", "/login")]
ROUTES += [("PUT", "/topics/a"), ("POST", "/topics/a"), ("DELETE", "/topics/a"), ("POST", "/publish"),
           ("POST", "/logout"), ("OPTIONS", "/topics/a")]


async def run(*command, patience, **options):
    """The exit code and everything it said."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, **options)
    try:
        said, _ = await within(process.communicate(), patience)
    except TimeoutError:
        process.kill()
        raise
    return process.returncode, said.decode(errors="replace")


@scenario
async def the_description_is_valid_openapi(doors):
    _, _, body = await doors.http.request("GET", "/openapi.json")
    validate(json.loads(body))


@scenario
async def schemathesis_finds_nothing(binary):
    # A long poll is as good as its answer: none lasts longer than a second.
    async with Gateway(binary, '[http]\nwait_max = "1s"') as gateway:
        code, said = await run(
            sys.executable, "-m", "schemathesis.cli", "--config-file", HERE / "schemathesis/schemathesis.toml", "run",
            gateway.http_base(secure=False) + "/openapi.json", "--seed", SEED, "--max-time", BUDGET_SECONDS, "--request-timeout", 10,
            "--continue-on-failure", "--no-color", patience=BUDGET_SECONDS + 90,
            cwd=gateway.scratch, env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": HERE / "schemathesis"})
        require("schemathesis", code == 0, f"ends with {code}:\n{said}")
        expect("the gateway", gateway.process.returncode, None)


@scenario
async def prometheus_reads_the_metrics_in_both_formats(doors):
    _, headers, body = await doors.http.request("GET", "/metrics", [("accept", "text/plain;version=0.0.4")])
    require("text", headers["content-type"].startswith("text/plain; version=0.0.4"), headers)
    text = list(read_text(body.decode()))
    _, headers, body = await doors.http.request("GET", "/metrics", [("accept", "application/openmetrics-text")])
    require("OpenMetrics", headers["content-type"].startswith("application/openmetrics-text"), headers)
    opened = list(read_openmetrics(body.decode()))
    for families in (text, opened):
        for family in families:
            require(family.name, family.documentation and family.type in ("counter", "gauge", "histogram"), family)
            for sample in family.samples:
                require(sample.name, (family.type == "counter") == sample.name.endswith("_total"), family.type)
    expect("the families", sorted(family.name for family in text), sorted(family.name for family in opened))


@scenario
async def a_foreign_host_is_refused_over_http3(gateway):
    client = Aioquic(gateway)
    await client.open()
    try:
        client.authority = EVIL
        for method, path in ROUTES:
            status, _, _ = await client.request(method, path, [("origin", f"https://{EVIL}")])
            expect(f"{method} {path}", status, 421)
    finally:
        await client.close()


@scenario
async def a_page_of_another_origin_may_what_its_origin_may(binary):
    browser = ["node", HERE / "cors.mjs"]
    listening = await asyncio.create_subprocess_exec(*map(str, browser), stdin=asyncio.subprocess.PIPE,
                                                     stdout=asyncio.subprocess.PIPE)
    try:
        # The page's origin is known when its server listens; the gateway is told it, and the page the gateway.
        origin = (await within(listening.stdout.readline(), 60)).decode().strip()
        async with Gateway(binary, f'[http]\norigins = ["{origin}"]') as named, Gateway(binary) as closed:
            bases = [gateway.http_base(secure=False) for gateway in (named, closed)]
            listening.stdin.write((json.dumps(bases) + "\n").encode())
            said, _ = await within(listening.communicate(), 90)
        named, closed = json.loads(said)
        expect("from an origin that is named", named, {
            "put": 201, "get": "value", "etag": True, "delete": 204, "post": 202, "missing": 404, "events": "live",
            "socket": "live", "credentials": 404})
        expect("from an origin that is not", set(closed.values()), {"refused"})
    finally:
        if listening.returncode is None:
            listening.kill()
