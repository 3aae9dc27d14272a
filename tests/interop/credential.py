"""Credentials that a client can present; each door accepts those of its row in docs/security.md."""

import ssl
from dataclasses import dataclass


@dataclass(frozen=True)
class Credential:
    """At most one of these is filled; a client that cannot show it is not asked to."""

    user: str | None = None
    password: str | None = None
    certificate: tuple[str, str] | None = None
    """PEM files: certificate (with its chain) and key."""
    psk: tuple[str, bytes] | None = None
    """Identity and secret; the secret is printable, libcoap's command line takes it as it is."""
    context: str | None = None
    """A directory with an OSCORE context as aiocoap keeps it, seen from the client."""
    token: str | None = None

    @property
    def login(self) -> tuple[str, str] | None:
        """User name and password; a token travels as the password where a protocol has only that."""
        if self.token is not None:
            return self.user or "token", self.token
        return None if self.password is None else (self.user, self.password)

    def tls(self, ca: str) -> ssl.SSLContext:
        """A client's context that trusts `ca` and shows the certificate, if there is one."""
        context = ssl.create_default_context(cafile=ca)
        if self.certificate:
            context.load_cert_chain(*self.certificate)
        return context


NOBODY = Credential()
