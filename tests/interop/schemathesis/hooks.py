"""Lines of JSON, which schemathesis does not know."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(_, value):
    return value if isinstance(value, bytes) else (json.dumps(value) + "\n").encode()


@schemathesis.deserializer("application/x-ndjson")
def first_line(_, response):
    # The schema is that of a line; an empty batch has none.
    return json.loads(response.content.split(b"\n")[0]) if response.content else {"line": 0, "status": 200}
