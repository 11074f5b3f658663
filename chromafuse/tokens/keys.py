"""Keys that check signatures: a PEM file, a certificate, a JWKS, or a shared secret.

The key decides which algorithms it takes part in, never the token. A public key in a form that is
not recognised must not pass for a shared secret: everybody could sign with it.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from chromafuse.domain.errors import ConfigError
from chromafuse.tokens.files import check_secret, read_file
from chromafuse.tokens.strict_json import parse_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
    from jwt.algorithms import AllowedPublicKeys

OPTION = "--jwt-key"
MAX_KEY_BYTES = 1 << 20
MIN_SECRET_BYTES = 32
MIN_RSA_BITS = 2048

HMAC = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Algorithms with a shared secret, and how many bytes it needs (RFC 7518, 3.2)."""
RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
EDWARDS = "EdDSA"
ALGORITHMS = (EDWARDS, *CURVES.values(), *RSA, *HMAC)

_JWK_CURVES = ("P-256", "P-384", "P-521", "Ed25519", "Ed448")
_PRIVATE_MEMBERS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})
_PEM_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----")


@dataclass(frozen=True, slots=True)
class Key:
    """A key, the algorithms it is used with, and its name in a JWKS."""

    material: AllowedPublicKeys | bytes = field(repr=False)
    algorithms: frozenset[str]
    kid: str | None = None
    from_set: bool = False


def load_keys(path: Path, wanted: Sequence[str] | None) -> tuple[Key, ...]:
    """Return the usable keys in the file ``path``, restricted to the algorithms ``wanted``.

    Without ``wanted``, an RSA key is used with RS256, a secret with HS256, and the others with
    the one algorithm that they have. Raises ``ConfigError``.
    """
    unknown = set(wanted or ()) - set(ALGORITHMS)
    if unknown or wanted == []:
        raise ConfigError(
            "--jwt-algorithms names one that is not supported",
            remedy=f"choose among {', '.join(ALGORITHMS)}",
        )
    data, info = read_file(path, OPTION, MAX_KEY_BYTES)
    data = data.removeprefix(b"\xef\xbb\xbf")
    loader = _Loader(path, info, wanted)
    if data.lstrip()[:1] == b"{":
        keys = loader.from_set(data)
    elif _PEM_BLOCK.search(data):
        keys = [loader.key(loader.from_pem(data))]
    else:
        keys = [loader.key(loader.from_secret(data))]
    usable = tuple(key for key in keys if key.algorithms)
    fitting = {name for key in usable for name in key.algorithms}
    if not usable or not set(wanted or ()) <= fitting:
        raise loader.error("holds no key for an algorithm of --jwt-algorithms")
    return usable


class _Loader:
    """What is known of the file, for all that stands in it."""

    def __init__(self, path: Path, info: os.stat_result, wanted: Sequence[str] | None) -> None:
        self._path = path
        self._info = info
        self._wanted = wanted

    def error(self, problem: str, remedy: str = "") -> ConfigError:
        return ConfigError(f"{OPTION} {self._path} {problem}", remedy=remedy)

    def key(
        self,
        material: PublicKeyTypes | bytes,
        stated: object = None,
        kid: str | None = None,
        *,
        from_set: bool = False,
    ) -> Key:
        """Return the key; ``stated`` is the one algorithm that a JWK names for itself."""
        possible = self._possible(material)
        if stated is not None:
            possible = [name for name in possible if name == stated]
        elif self._wanted is None:
            possible = possible[:1]
        names = [name for name in possible if self._wanted is None or name in self._wanted]
        if isinstance(material, bytes):
            self._check_secret(material, names)
        # What is none of the allowed kinds has been refused.
        return Key(cast("AllowedPublicKeys", material), frozenset(names), kid, from_set)

    def _possible(self, material: PublicKeyTypes | bytes) -> list[str]:
        """Return the algorithms that ``material`` fits, the usual one first."""
        from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

        if isinstance(material, bytes):
            return list(HMAC)
        if isinstance(material, rsa.RSAPublicKey):
            if material.key_size < MIN_RSA_BITS:
                raise self.error(f"is an RSA key of less than {MIN_RSA_BITS} bits")
            return list(RSA)
        if isinstance(material, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
            return [EDWARDS]
        if isinstance(material, ec.EllipticCurvePublicKey) and material.curve.name in CURVES:
            return [CURVES[material.curve.name]]
        raise self.error("is a key of a kind that is not supported", "use Ed25519, P-256 or RSA")

    def _check_secret(self, secret: bytes, names: Collection[str]) -> None:
        check_secret(self._info, self._path, OPTION)
        needed = max((HMAC[name] for name in names), default=MIN_SECRET_BYTES)
        if len(secret) < needed:
            raise self.error(
                f"is too short a secret: {needed} bytes are needed", "openssl rand -hex 32"
            )

    # Forms

    def from_pem(self, data: bytes) -> PublicKeyTypes:
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        labels = _PEM_BLOCK.findall(data)
        if any(label.endswith(b"PRIVATE KEY") for label in labels):
            raise self.error(_IS_PRIVATE, _PUBLISH)
        if len(labels) > 1:
            raise self.error("holds several PEM blocks", "several keys are given as a JWKS")
        try:
            if labels[0] == b"CERTIFICATE":
                return x509.load_pem_x509_certificate(data).public_key()
            return load_pem_public_key(data)
        except (ValueError, UnsupportedAlgorithm):
            raise self.error("is not a PEM file with a public key or a certificate") from None

    def from_secret(self, data: bytes) -> bytes:
        from jwt import InvalidKeyError
        from jwt.algorithms import HMACAlgorithm

        secret = data[:-1] if data.endswith(b"\n") else data
        secret = secret[:-1] if secret.endswith(b"\r") and secret != data else secret
        try:
            for form in (secret, secret.strip(), _unwrapped(secret)):
                HMACAlgorithm(HMACAlgorithm.SHA256).prepare_key(form or secret)
        except InvalidKeyError:
            looks_public = True
        else:
            looks_public = b"-----" in secret.replace(b"\0", b"")
        if looks_public:
            raise self.error(
                "is a key or a certificate in a form that is not read here",
                "give it as PEM or JWKS",
            )
        return secret

    def from_set(self, data: bytes) -> list[Key]:
        try:
            document = parse_json(data)
        except ValueError:
            raise self.error("begins like a JWKS and is not JSON") from None
        members = document.get("keys", [document]) if isinstance(document, dict) else None
        if not isinstance(members, list) or not all(isinstance(item, dict) for item in members):
            raise self.error("is not a JWKS")
        if any(item.get("kty") == "oct" for item in members):
            check_secret(self._info, self._path, OPTION)
        if any(item.get("kty") != "oct" and _PRIVATE_MEMBERS & item.keys() for item in members):
            raise self.error(_IS_PRIVATE, _PUBLISH)
        keys = [self._from_jwk(item) for item in members if _is_for_signatures(item)]
        names = [key.kid for key in keys]
        if len(set(names)) < len(names):
            raise self.error("holds two keys with one kid, or without any")
        if not keys:
            raise self.error("holds no key that can check a signature")
        return keys

    def _from_jwk(self, item: Mapping[str, object]) -> Key:
        import jwt
        from cryptography.exceptions import UnsupportedAlgorithm
        from jwt.algorithms import ECAlgorithm, HMACAlgorithm, OKPAlgorithm, RSAAlgorithm

        kid = item.get("kid")
        texts = all(isinstance(item.get(name, ""), str) for name in ("n", "e", "x", "y", "k"))
        if not texts or not (kid is None or (isinstance(kid, str) and kid)):
            raise self.error("holds a malformed key")
        readers: dict[str, type[RSAAlgorithm | ECAlgorithm | OKPAlgorithm]]
        readers = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "OKP": OKPAlgorithm}
        reader = readers.get(str(item["kty"]), HMACAlgorithm)
        try:
            material: Any = reader.from_jwk(dict(item))
        except (jwt.PyJWTError, UnsupportedAlgorithm, ValueError, KeyError):
            raise self.error("holds a malformed key") from None
        return self.key(material, item.get("alg"), kid, from_set=True)


_IS_PRIVATE = "holds a private key"
_PUBLISH = "give the public key alone; the private one stays with who signs"


def _is_for_signatures(item: Mapping[str, object]) -> bool:
    """Return whether a member of a JWKS is meant for signatures and of a kind known here.

    Others are passed over, as RFC 7517 asks.
    """
    kty = item.get("kty")
    if kty not in ("RSA", "EC", "OKP", "oct") or item.get("use", "sig") != "sig":
        return False
    if kty in ("EC", "OKP") and item.get("crv") not in _JWK_CURVES:
        return False
    operations = item.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return False
    return "alg" not in item or item["alg"] in ALGORITHMS


def _unwrapped(secret: bytes) -> bytes | None:
    """Return what ``secret`` is base64 of, or None: some show a public key without its PEM."""
    try:
        return base64.b64decode(b"".join(secret.split()), validate=True) or None
    except binascii.Error:
        return None
