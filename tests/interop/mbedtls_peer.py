"""mbedTLS (DTLS 1.2) behind the line protocol of `clients_dtls.py`: a process of its own, because it blocks.

    mbedtls_peer.py client HOST:PORT|server SUITE [--psk IDENTITY KEY] [--ca FILE] [--cert CHAIN KEY]

A server prints `listening PORT` and takes one client. Lines in: send HEX, receive MILLISECONDS, close. Lines out:
established VERSION SUITE - -, data HEX, silence, closed, failed WHY.
"""

import argparse
import select
import socket
import time

from mbedtls import hashlib, pk, tls, version
from mbedtls.x509 import CRT

from line_peer import say, serve

HANDSHAKE_SECONDS = 10
"""It repeats nothing by itself, so that a wrong key, which the gateway tells with a repeated Finished, ends so."""


def configuration(arguments):
    settings = {"lowest_supported_version": tls.DTLSVersion.DTLSv1_2,
                "highest_supported_version": tls.DTLSVersion.DTLSv1_2,
                "ciphers": (arguments.suite,), "validate_certificates": bool(arguments.ca)}
    if arguments.psk:
        identity, key = arguments.psk
        # A client has one key, a server a table of them.
        if arguments.role == "server":
            settings["pre_shared_key_store"] = {identity: key.encode()}
        else:
            settings["pre_shared_key"] = (identity, key.encode())
    if arguments.ca:
        settings["trust_store"] = tls.TrustStore([CRT.from_file(arguments.ca)])
    if arguments.cert:
        chain, key = arguments.cert
        certificate = CRT.from_file(chain)
        private = private_key(key)
        settings["certificate_chain"] = ([certificate], private)
    return tls.DTLSConfiguration(**settings)


def private_key(file):
    """The key of a PEM file, of either kind."""
    with open(file) as opened:
        text = opened.read()
    for kind in (pk.ECC, pk.RSA):
        try:
            return kind.from_PEM(text)
        except Exception:
            continue
    raise SystemExit("failed a key that is neither")


def until(sock, step, seconds):
    """Repeats a step of the library's until it wants nothing more; None when time is up."""
    end = time.monotonic() + seconds
    while True:
        try:
            return step()
        except (tls.WantReadError, TimeoutError):
            ready, _, _ = select.select([sock], [], [], max(0, min(0.25, end - time.monotonic())))
            if not ready and time.monotonic() >= end:
                return None
        except tls.WantWriteError:
            pass


def shake(sock):
    end = time.monotonic() + HANDSHAKE_SECONDS
    while until(sock, lambda: sock.do_handshake() or True, 1) is None:
        if time.monotonic() >= end:
            raise TimeoutError("handshake")


def connect(arguments):
    host, port = arguments.address.rsplit(":", 1)
    plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # The library waits in the socket, and repeats what was lost only when it is asked to go on.
    plain.settimeout(0.25)
    sock = tls.ClientContext(configuration(arguments)).wrap_socket(
        plain, server_hostname="localhost" if arguments.ca else None)
    sock.connect((host, int(port)))
    shake(sock)
    return sock


def accept(arguments):
    plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # The library binds one more socket to the same port when it accepts.
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener = tls.ServerContext(configuration(arguments)).wrap_socket(plain)
    listener.bind(("127.0.0.1", 0))
    say(f"listening {listener.getsockname()[1]}")
    while True:
        sock, address = listener.accept()
        sock.setcookieparam(hashlib.sha256(repr(address).encode()).digest())
        try:
            shake(sock)
            return sock
        except tls.HelloVerifyRequest:
            # The library begins again with the ClientHello that has the cookie (RFC 6347 §4.2.1).
            sock, address = sock.accept()
            sock.setcookieparam(hashlib.sha256(repr(address).encode()).digest())
            shake(sock)
            return sock


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("client", "server", "version"))
    parser.add_argument("address", nargs="?")
    parser.add_argument("--suite")
    parser.add_argument("--psk", nargs=2)
    parser.add_argument("--ca")
    parser.add_argument("--cert", nargs=2)
    arguments = parser.parse_args()
    if arguments.role == "version":
        return say(version.version)
    try:
        sock = connect(arguments) if arguments.role == "client" else accept(arguments)
        described = f"{sock.negotiated_tls_version().name} {sock.cipher()}"
        serve(described, sock.send, lambda ms: until(sock, lambda: sock.recv(16384), ms / 1000), sock.close)
    except Exception as error:
        say(f"failed {type(error).__name__} {error}")


main()
