"""A collector of traces: OTLP over HTTP, decoded by the package opentelemetry-proto."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.trace.v1 import trace_pb2 as trace

from client import PATIENCE
import patience


class Span:
    """A span as the collector got it."""

    def __init__(self, span: trace.Span, resource: dict):
        self.trace, self.id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.name, self.state, self.flags = span.name, span.trace_state, span.flags
        self.kind = trace.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_")
        self.start, self.end = span.start_time_unix_nano, span.end_time_unix_nano
        self.attributes = {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
        self.failed = span.status.code == trace.Status.STATUS_CODE_ERROR
        self.resource = resource

    @property
    def topic(self) -> str:
        return self.attributes["messaging.destination.name"]

    def __repr__(self):
        return f"{self.name} {self.topic} {self.id} of {self.parent or 'nothing'}"


class Collector:
    """Takes spans, or answers with another status for as long as it is told to."""

    def __init__(self):
        self.spans: list[Span] = []
        self.status, self.requests = 200, 0
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests += 1
                if collector.status == 200:
                    assert self.headers["Content-Type"] == "application/x-protobuf" and self.path == "/v1/traces"
                    collector.take(service.ExportTraceServiceRequest.FromString(body))
                answer = service.ExportTraceServiceResponse().SerializeToString()
                self.send_response(collector.status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def take(self, request):
        for resource in request.resource_spans:
            attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [Span(span, attributes) for span in scope.spans]

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def of(self, topic: str) -> list[Span]:
        return [span for span in self.spans if span.topic == topic]

    async def named(self, topic: str, *names: str) -> list[Span]:
        """The spans of a topic with these names, in their order, once there are as many of each."""
        deadline = patience.now() + PATIENCE
        while True:
            found, rest = [], self.of(topic)
            for name in names:
                span = next((span for span in rest if span.name == name), None)
                if span is not None:
                    rest.remove(span)
                    found.append(span)
            if len(found) == len(names):
                return found
            if patience.now() > deadline:
                raise AssertionError(f"{topic}: {names} are not all in {self.of(topic)}")
            await asyncio.sleep(0.05)
