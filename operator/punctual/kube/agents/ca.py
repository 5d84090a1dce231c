"""The certificate authority by which agents verify the operator, and its rotation steps. No I/O here.

The operator creates it, keeps it in a Secret and publishes its certificates in a ConfigMap that the agents mount
(:mod:`punctual.kube.agents.rotation`). A rotation must never leave an agent with a server that it does not trust. A
:class:`Trust` therefore changes in steps, and it is safe to stop after each:

    signing                        one authority signs
    signing + coming               a third of its life is left: its successor is published beside it
    signing + coming, published    the ConfigMap was seen to hold both
    signing (was coming) + retired all agents had ``spread`` seconds to read it: the successor signs,
                                   the old one stays published until it expires: the other replica may still use it

Every replica signs a serving certificate of its own in memory; none is stored. Times are float seconds since the epoch
on the API server's clock, passed in. Keys are EC P-256, certificates and keys PEM text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """Lifetimes in seconds."""

    authority: float = 365 * DAY
    serving: float = 30 * DAY
    backdate: float = HOUR
    """A certificate becomes valid this long before its creation, because a node's clock may be slow."""
    spread: float = HOUR
    """Time from the publication of an authority to its first signature. The kubelet updates a mounted ConfigMap within
    two minutes."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate with its key and its period of validity."""

    certificate: str
    key: str
    begin: float
    end: float

    @classmethod
    def parse(cls, certificate: str, key: str) -> Self:
        """Parse PEM text.

        Raises ValueError for an invalid certificate or key, or for the key of another certificate.
        """
        found = x509.load_pem_x509_certificate(certificate.encode())
        if _private(key).public_key() != found.public_key():
            raise ValueError("the key does not belong to the certificate")
        return cls(certificate, key, found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp())

    def due(self, now: float) -> bool:
        """Return whether a third or less of its life is left."""
        return now >= self.end - (self.end - self.begin) / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The authorities that the operator's replicas share: the present one, its successor, and the retired ones."""

    signing: Signed
    coming: Signed | None = None
    published: float | None = None
    """The time at which ``coming`` was seen in the ConfigMap."""
    retired: tuple[str, ...] = ()
    """Certificates of authorities that no longer sign but have not expired."""

    @property
    def bundle(self) -> str:
        """The PEM certificates that agents trust."""
        coming = (self.coming.certificate,) if self.coming else ()
        return "".join((self.signing.certificate, *coming, *self.retired))

    def to_data(self) -> dict[str, str]:
        """Return the Secret's content."""
        data = {"ca.crt": self.signing.certificate, "ca.key": self.signing.key, "retired.crt": "".join(self.retired)}
        if self.coming:
            data |= {"coming.crt": self.coming.certificate, "coming.key": self.coming.key}
        if self.published is not None:
            data["published"] = repr(self.published)
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, str]) -> Self:
        """Read the Secret's content. Raises ValueError or KeyError if it was not written by the operator."""
        coming = Signed.parse(data["coming.crt"], data["coming.key"]) if "coming.crt" in data else None
        published = float(data["published"]) if "published" in data else None
        retired = tuple(_pem(c) for c in _certificates(data.get("retired.crt", "")))
        return cls(
            signing=Signed.parse(data["ca.crt"], data["ca.key"]), coming=coming, published=published, retired=retired
        )


def new_trust(now: float, *, lifetimes: Lifetimes) -> Trust:
    """Return a Trust with a new authority."""
    return Trust(signing=make_authority(now, lifetimes=lifetimes))


def advance(trust: Trust, now: float, *, seen: str | None, lifetimes: Lifetimes) -> Trust:
    """Take the next step if it is due. Otherwise return ``trust`` itself.

    ``seen`` is the content of the ConfigMap at its last read. Each step is stored before the next one is taken.
    """
    if now >= trust.signing.end:  # no replica ran for months and no agent trusts any: start anew
        return Trust(signing=trust.coming or make_authority(now, lifetimes=lifetimes))
    kept = tuple(c for c in trust.retired if x509.load_pem_x509_certificate(c.encode()).not_valid_after_utc > _at(now))
    if kept != trust.retired:
        return replace(trust, retired=kept)
    if trust.coming is None:
        return replace(trust, coming=make_authority(now, lifetimes=lifetimes)) if trust.signing.due(now) else trust
    if trust.published is None:
        return replace(trust, published=now) if seen is not None and trust.coming.certificate in seen else trust
    if now < trust.published + lifetimes.spread:
        return trust
    return Trust(signing=trust.coming, retired=(trust.signing.certificate, *trust.retired))


def make_authority(now: float, *, lifetimes: Lifetimes) -> Signed:
    """Create a self-signed authority.

    Its name contains its serial number: two authorities of one name would break path building.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"punctual-ca-{serial:x}"[:40])])
    begin, end = now - lifetimes.backdate, now + lifetimes.authority
    certificate = (
        _builder(name, name, key, serial=serial, begin=begin, end=end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Signed.parse(_pem(certificate), _key_pem(key))


def make_serving(authority: Signed, names: Sequence[str], now: float, *, lifetimes: Lifetimes) -> Signed:
    """Sign a serving certificate for these DNS names. It never outlives its authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signer = _private(authority.key)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    begin, end = now - lifetimes.backdate, min(now + lifetimes.serving, authority.end)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    certificate = (
        _builder(name, issuer.subject, key, serial=x509.random_serial_number(), begin=begin, end=end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return Signed.parse(_pem(certificate), _key_pem(key))


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the DNS names of a Service that are valid in every cluster, whatever its domain."""
    return (f"{service}.{namespace}.svc", f"{service}.{namespace}", service)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    serial: int,
    begin: float,
    end: float,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(_at(begin))
        .not_valid_after(_at(end))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _private(pem: str) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem.encode(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic curve key")  # noqa: TRY004  the text is wrong, not its type
    return key


def _certificates(text: str) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(text.encode()) if text.strip() else []


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _at(time: float) -> datetime:
    return datetime.fromtimestamp(time, UTC)
