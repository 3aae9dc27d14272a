"""GnuTLS (DTLS 1.2) behind the line protocol of `clients_dtls.py`, by its C interface: `gnutls-cli` cannot announce a
limit for records (RFC 8449) in DTLS.

    gnutls_peer.py client HOST:PORT|server --ca FILE [--cert CHAIN KEY] [--limit BYTES] [--priority STRING]

A server prints `listening PORT` and takes one client, whose certificate it wants. Lines in: send HEX, receive
MILLISECONDS, close. Lines out: established VERSION SUITE - -, data HEX, silence, closed, failed WHY.
"""

import argparse
import ctypes
import ctypes.util
import socket
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p

from line_peer import say, serve

GNUTLS = ctypes.CDLL(ctypes.util.find_library("gnutls") or "libgnutls.so.30")
GNUTLS.gnutls_strerror.restype = GNUTLS.gnutls_check_version.restype = c_char_p
GNUTLS.gnutls_protocol_get_name.restype = GNUTLS.gnutls_ciphersuite_get.restype = c_char_p
GNUTLS.gnutls_record_recv.restype = GNUTLS.gnutls_record_send.restype = ctypes.c_ssize_t

SERVER, CLIENT, DATAGRAM = 1, 2, 4
CRD_CERTIFICATE, X509_FMT_PEM, CERT_REQUIRE = 1, 1, 2
E_AGAIN, E_TIMEDOUT = -28, -319
DEFAULTS = "NORMAL:-VERS-ALL:+VERS-DTLS1.2"
HANDSHAKE_MILLISECONDS = 10_000


class GnutlsError(Exception):
    pass


def check(result):
    if result < 0:
        raise GnutlsError(GNUTLS.gnutls_strerror(c_int(result)).decode())
    return result


class Session:
    """A session over a connected socket, shaken by hands."""

    def __init__(self, arguments, sock):
        self.sock, self.it, credentials = sock, c_void_p(), c_void_p()
        check(GNUTLS.gnutls_certificate_allocate_credentials(byref(credentials)))
        check(GNUTLS.gnutls_certificate_set_x509_trust_file(credentials, arguments.ca.encode(), X509_FMT_PEM))
        if arguments.cert:
            chain, key = (file.encode() for file in arguments.cert)
            check(GNUTLS.gnutls_certificate_set_x509_key_file(credentials, chain, key, X509_FMT_PEM))
        role = CLIENT if arguments.role == "client" else SERVER
        check(GNUTLS.gnutls_init(byref(self.it), c_uint(role | DATAGRAM)))
        check(GNUTLS.gnutls_priority_set_direct(self.it, arguments.priority.encode(), None))
        check(GNUTLS.gnutls_credentials_set(self.it, CRD_CERTIFICATE, credentials))
        if role == CLIENT:
            check(GNUTLS.gnutls_server_name_set(self.it, 1, b"localhost", c_size_t(9)))
            GNUTLS.gnutls_session_set_verify_cert(self.it, b"localhost", c_uint(0))
        else:
            GNUTLS.gnutls_certificate_server_set_request(self.it, CERT_REQUIRE)
            GNUTLS.gnutls_session_set_verify_cert(self.it, None, c_uint(0))
        if arguments.limit:
            check(GNUTLS.gnutls_record_set_max_recv_size(self.it, c_size_t(arguments.limit)))
        GNUTLS.gnutls_transport_set_int2(self.it, c_int(sock.fileno()), c_int(sock.fileno()))
        GNUTLS.gnutls_dtls_set_mtu(self.it, c_uint(1400))
        GNUTLS.gnutls_dtls_set_timeouts(self.it, c_uint(1000), c_uint(HANDSHAKE_MILLISECONDS))
        while (result := GNUTLS.gnutls_handshake(self.it)) < 0:
            if GNUTLS.gnutls_error_is_fatal(c_int(result)):
                check(result)

    def described(self):
        version = GNUTLS.gnutls_protocol_get_name(GNUTLS.gnutls_protocol_get_version(self.it))
        return f"{version.decode()} {GNUTLS.gnutls_ciphersuite_get(self.it).decode()}"

    def send(self, data):
        check(GNUTLS.gnutls_record_send(self.it, data, c_size_t(len(data))))

    def receive(self, milliseconds):
        """The next message; nothing when the session was closed, None when time is up."""
        GNUTLS.gnutls_record_set_timeout(self.it, c_uint(milliseconds))
        buffer = ctypes.create_string_buffer(1 << 14)
        while True:
            result = GNUTLS.gnutls_record_recv(self.it, buffer, c_size_t(len(buffer)))
            if result >= 0:
                return buffer.raw[:result]
            if result == E_TIMEDOUT:
                return None
            if result != E_AGAIN and GNUTLS.gnutls_error_is_fatal(c_int(result)):
                check(result)

    def close(self):
        GNUTLS.gnutls_bye(self.it, 1)


def connect(arguments):
    host, port = arguments.address.rsplit(":", 1)
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect((host, int(port)))
    return sock


def accept():
    """A socket that is connected to the first client; its ClientHello is left in it."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    say(f"listening {sock.getsockname()[1]}")
    _, address = sock.recvfrom(1, socket.MSG_PEEK)
    sock.connect(address)
    return sock


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("client", "server", "version"))
    parser.add_argument("address", nargs="?")
    parser.add_argument("--ca")
    parser.add_argument("--cert", nargs=2)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--priority", default=DEFAULTS)
    arguments = parser.parse_args()
    if arguments.role == "version":
        return say(GNUTLS.gnutls_check_version(None).decode())
    try:
        session = Session(arguments, connect(arguments) if arguments.role == "client" else accept())
        serve(session.described(), session.send, session.receive, session.close)
    except Exception as error:
        say(f"failed {type(error).__name__} {error}")


main()
