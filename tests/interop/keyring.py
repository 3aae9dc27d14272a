"""One identity in every form a door can check, and the same rules over all doors: the gateway that knows them.

Everything made here is made by others' libraries: certificates by `cryptography`, tokens by PyJWT, contexts in the format
of aiocoap. What `fogmux pki` makes is shown by scenarios of its own.
"""

import datetime
import ipaddress
import json
import os
import secrets
import time
from pathlib import Path

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from client import run
from credential import NOBODY, Credential
from gateway import LISTENERS, Gateway

RULES = """
[[allow]]
user = "alice"
both = ["open/#"]

[[allow]]
user = "bob"
read = ["open/#"]

[[deny]]
user = "alice"
both = ["open/secret/#"]

[[allow]]
user = "warden"
both = ["#"]
"""
"""alice reads and writes below `open` but not the secret, bob only reads, nobody anything else; warden looks on."""

USERS = ("alice", "bob", "warden")
XMPP_ADDRESS = ObjectIdentifier("1.3.6.1.5.5.7.8.5")
"""id-on-xmppAddr (RFC 6120 §13.7.1.4)."""


class Authority:
    """A certificate authority: the gateway's own, from its files, or a stranger's."""

    def __init__(self, certificate, key):
        self.certificate, self.key = certificate, key

    @classmethod
    def load(cls, directory: Path):
        return cls(x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes()),
                   serialization.load_pem_private_key((directory / "ca.key").read_bytes(), None))

    @classmethod
    def stranger(cls):
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("a stranger")
        now = datetime.datetime.now(datetime.UTC)
        certificate = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()) \
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1)) \
            .not_valid_after(now + datetime.timedelta(days=30)) \
            .add_extension(x509.BasicConstraints(True, 0), True).sign(key, hashes.SHA256())
        return cls(certificate, key)

    def client(self, place: Path, label: str, user: str, begin=-1, end=30, bits=0) -> tuple[str, str]:
        """Writes LABEL.pem and LABEL.key; `begin` and `end` in days from now, `bits` for an RSA key."""
        key = rsa.generate_private_key(65537, bits) if bits else ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        address = b"\x0c" + bytes([len(user) + 10]) + f"{user}@localhost".encode()
        certificate = x509.CertificateBuilder().subject_name(_name(user)).issuer_name(self.certificate.subject) \
            .public_key(key.public_key()).serial_number(x509.random_serial_number()) \
            .not_valid_before(now + datetime.timedelta(days=begin)) \
            .not_valid_after(now + datetime.timedelta(days=end)) \
            .add_extension(x509.BasicConstraints(False, None), True) \
            .add_extension(x509.KeyUsage(True, False, False, False, False, False, False, False, False), True) \
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False) \
            .add_extension(x509.SubjectAlternativeName([x509.OtherName(XMPP_ADDRESS, address)]), False) \
            .add_extension(self.key_identifier(), False).sign(self.key, hashes.SHA256())
        return _write(place, label, certificate, key)

    def key_identifier(self) -> x509.AuthorityKeyIdentifier:
        """As the authority's own certificate has it: wolfSSL finds it by nothing else (RFC 5280 §4.2.1.1)."""
        try:
            subject = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        except x509.ExtensionNotFound:
            return x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(subject)

    def revoke(self, file: Path, certificate: str):
        """A list with this one certificate on it (RFC 5280 §5)."""
        now = datetime.datetime.now(datetime.UTC)
        serial = x509.load_pem_x509_certificate(Path(certificate).read_bytes()).serial_number
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        crl = x509.CertificateRevocationListBuilder().issuer_name(self.certificate.subject) \
            .last_update(now - datetime.timedelta(hours=1)).next_update(now + datetime.timedelta(days=1)) \
            .add_extension(x509.CRLNumber(1), False) \
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False) \
            .add_revoked_certificate(entry).sign(self.key, hashes.SHA256())
        file.write_bytes(crl.public_bytes(serialization.Encoding.PEM))

    def server(self, place: Path, label: str, bits: int) -> tuple[str, str]:
        """A certificate for the gateway itself with an RSA key."""
        key = rsa.generate_private_key(65537, bits)
        now = datetime.datetime.now(datetime.UTC)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = x509.CertificateBuilder().subject_name(_name("localhost")).issuer_name(self.certificate.subject) \
            .public_key(key.public_key()).serial_number(x509.random_serial_number()) \
            .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=30)) \
            .add_extension(x509.BasicConstraints(False, None), True) \
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False) \
            .add_extension(x509.SubjectAlternativeName(names), False).sign(self.key, hashes.SHA256())
        return _write(place, label, certificate, key)


def _write(place: Path, label: str, certificate, key) -> tuple[str, str]:
    files = place / f"{label}.pem", place / f"{label}.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return str(files[0]), str(files[1])


def private(file: Path, text: str):
    """Writes what only the owner may read."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        opened.write(text)


def _name(common_name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class KeyRing:
    """Credentials of every kind for every user, and wrong ones of every kind."""

    def __init__(self, place: Path):
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        self.signing = ec.generate_private_key(ec.SECP256R1())
        self.psks = {user: secrets.token_hex(8).encode() for user in USERS}
        self.contexts: dict[tuple[str, str], Path] = {}

    def certify(self, authority: Authority):
        self.certificates = {user: authority.client(self.place, user, user) for user in USERS}
        self.revoked = authority.client(self.place, "revoked", "alice")
        self.bad_certificates = {
            "an expired certificate": authority.client(self.place, "expired", "alice", begin=-60, end=-1),
            "a certificate of tomorrow": authority.client(self.place, "tomorrow", "alice", begin=2),
            "a stranger's certificate": Authority.stranger().client(self.place, "strange", "alice"),
        }

    def context(self, user: str, label: str, **settings) -> str:
        """A new OSCORE context (RFC 8613 §3) for one client of a user; both sides' files, mirror images of each other.

        No two clients may share one: their sequence numbers would collide."""
        number = len(self.contexts) + 1
        ours, theirs = bytes([0x10, number]).hex(), bytes([0x20, number]).hex()
        common = {"secret_hex": secrets.token_hex(16), "salt_hex": secrets.token_hex(8), **settings}
        place = self.place / f"oscore-{user}-{label}"
        for side, sender, recipient in (("client", ours, theirs), ("server", theirs, ours)):
            directory = place / side
            directory.mkdir(parents=True)
            (directory / "settings.json").write_text(
                json.dumps({**common, "sender-id_hex": sender, "recipient-id_hex": recipient}))
        self.contexts[user, label] = place
        return str(place / "client")

    @staticmethod
    def context_file(user: str, directory: Path) -> str:
        """The same context as the gateway keeps it."""
        fields = json.loads((directory / "settings.json").read_text())
        names = {"secret_hex": "master_secret", "salt_hex": "master_salt", "sender-id_hex": "sender_id",
                 "recipient-id_hex": "recipient_id", "id-context_hex": "id_context", "algorithm": "algorithm"}
        return f'user = "{user}"\nmade = {int(time.time())}\n' + "".join(
            f'{names[name]} = "{value}"\n' for name, value in fields.items())

    def token(self, user: str, key=None, algorithm="ES256", **claims) -> str:
        now = int(time.time())
        claims = {"sub": user, "aud": "fogmux", "iat": now, "exp": now + 600, **claims}
        key = None if algorithm == "none" else key or self.signing
        return jwt.encode(claims, key, algorithm, headers={"kid": "house"})

    def jwks(self) -> str:
        """The public keys that check tokens (RFC 7517)."""
        key = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.signing.public_key()))
        return json.dumps({"keys": [{**key, "kid": "house", "alg": "ES256", "use": "sig"}]})

    def right(self, kind: str, user: str, label: str) -> Credential:
        match kind:
            case "password":
                return Credential(user=user, password=f"{user}'s password")
            case "certificate":
                return Credential(user=user, certificate=self.certificates[user])
            case "psk":
                return Credential(psk=(user, self.psks[user]))
            case "oscore":
                # Under DTLS there has to be a key for that too, of the same device.
                psk = (user, self.psks[user]) if "dtls" in label else None
                return Credential(psk=psk, context=str(self.contexts[user, label] / "client"))
            case "token":
                return Credential(user=user, token=self.token(user))
            case _:
                return NOBODY

    def wrong(self, kind: str, label: str) -> dict[str, Credential]:
        now = int(time.time())
        match kind:
            case "password":
                return {"a wrong password": Credential(user="alice", password="wrong"),
                        "an unknown user": Credential(user=f"mallory-{label}", password="alice's password")}
            case "certificate":
                return {**{what: Credential(user="alice", certificate=files)
                           for what, files in self.bad_certificates.items()},
                        "a revoked certificate": Credential(user="alice", certificate=self.revoked)}
            case "psk":
                return {"a wrong key": Credential(psk=("alice", b"0123456789abcdef")),
                        "an unknown identity": Credential(psk=("mallory", self.psks["alice"]))}
            case "oscore":
                psk = ("alice", self.psks["alice"]) if "dtls" in label else None
                return {"a wrong secret": Credential(psk=psk, context=self._spoiled(label, secret_hex="00" * 16)),
                        "an unknown kid": Credential(
                            psk=psk, context=self._spoiled(label, **{"sender-id_hex": "7777"}))}
            case "token":
                other = ec.generate_private_key(ec.SECP256R1())
                return {"a token out of date": Credential(user="alice", token=self.token("alice", exp=now - 120)),
                        "a token of tomorrow": Credential(user="alice", token=self.token("alice", nbf=now + 86400)),
                        "another's signature": Credential(user="alice", token=self.token("alice", other)),
                        "another's audience": Credential(user="alice", token=self.token("alice", aud="elsewhere")),
                        "no signature": Credential(user="alice", token=self.token("alice", algorithm="none"))}
            case _:
                return {}

    def _spoiled(self, label: str, **changes) -> str:
        source = self.contexts["alice", label] / "client/settings.json"
        place = self.place / f"spoiled-{label}-{secrets.token_hex(4)}"
        place.mkdir()
        (place / "settings.json").write_text(json.dumps({**json.loads(source.read_text()), **changes}))
        return str(place)


class LockedGateway(Gateway):
    """Nobody comes in without a credential; every kind is known before it starts."""

    encrypted = ("mqtts", "coaps", "coaps_tcp", "https", "xmpp", "xmpps")
    extra: dict[str, str] = {}
    """More lines for a listener's section."""

    def __init__(self, binary, config="", data=None, contexts=()):
        super().__init__(binary, config, data)
        self.ring = KeyRing(Path(self.home.name, "ring"))
        for user, label in contexts:
            self.ring.context(user, label)

    def config_text(self):
        sections = []
        for name in LISTENERS:
            lines = [f"[listeners.{name}]", f'address = "{self.address(name)}"', "anonymous = false"]
            if name in self.encrypted:
                lines.append('client_certificates = "optional"')
            sections.append("\n".join([*lines, self.extra.get(name, "")]))
        return "\n".join([*sections, self.keys_config(), self.config, ""])

    def address(self, listener) -> str:
        return "127.0.0.1:0"

    def keys_config(self) -> str:
        """Where the gateway finds what it checks tokens with; everything else lies in the data directory."""
        return f'[auth.token]\njwks_file = "{self.ring.place / "jwks.json"}"\naudience = ["fogmux"]\n' \
            "[auth.backoff]\nfree_failures = 1_000_000"

    @property
    def ca(self) -> str:
        """Of the authority, whatever certificate the gateway itself shows."""
        return str(Path(self.data, "pki/ca.pem"))

    async def __aenter__(self):
        if not (Path(self.data) / "users.toml").exists():
            await self.furnish()
        return await super().__aenter__()

    async def fogmux(self, *arguments, stdin=None) -> str:
        code, out, err = await run(self.binary, *arguments, "--data", self.data, stdin=stdin)
        if code != 0:
            raise RuntimeError(f"fogmux {' '.join(arguments)}: exit {code} {(out + err).decode()}")
        return out.decode()

    async def furnish(self):
        """Makes the data directory: users, rules, authority, revocation, pre-shared keys, contexts, token keys."""
        os.makedirs(self.data, mode=0o700, exist_ok=True)
        for user in USERS:
            await self.fogmux("passwd", user, stdin=f"{user}'s password\n".encode())
        data = Path(self.data)
        (data / "acl.toml").write_text(RULES)
        await self.fogmux("pki", "init")
        authority = Authority.load(data / "pki")
        self.ring.certify(authority)
        authority.revoke(data / "pki/crl.pem", self.ring.revoked[0])
        private(data / "psk.toml", "".join(
            f'[[psk]]\nidentity = "{user}"\nkey = "{secret.hex()}"\n' for user, secret in self.ring.psks.items()))
        (data / "oscore").mkdir(mode=0o700)
        for (user, label), place in self.ring.contexts.items():
            private(data / f"oscore/{user}-{label}.toml", self.ring.context_file(user, place / "server"))
        (self.ring.place / "jwks.json").write_text(self.ring.jwks())
