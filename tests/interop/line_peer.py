"""The line protocol of `clients_dtls.py`, as a peer in Python speaks it.

Lines in: send HEX, receive MILLISECONDS, close. Lines out: established VERSION SUITE - -, data HEX, silence, closed.
"""

import sys


def say(line):
    print(line, flush=True)


def serve(described, send, receive, close):
    """Does as the lines say. `receive` gives the next message, nothing at the end of the session, None at a timeout."""
    say(f"established {described} - -")
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "send":
            send(bytes.fromhex(rest))
        elif word == "receive":
            data = receive(int(rest))
            say("silence" if data is None else f"data {data.hex()}" if data else "closed")
        elif word == "close":
            break
    close()
