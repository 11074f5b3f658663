"""Keys, tokens and verifiers for tests, made with the libraries that others make theirs with."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from chromafuse.config import Settings
from chromafuse.tokens import TokenVerifier, verifier_from

NOW = 1_800_000_000.0
SECRET = b"0123456789abcdef0123456789abcdef"


class Pair(NamedTuple):
    """What signs, and what is given to the verifier."""

    private: Any
    public: Any

    @property
    def pem(self) -> bytes:
        found = self.public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        assert isinstance(found, bytes)
        return found


@functools.cache
def pair(kind: str, number: int = 0) -> Pair:
    """A pair of keys of a kind; another number is another pair."""
    private: Any
    if kind.startswith(("RS", "PS")):
        private = _rsa(number)
    elif kind == "EdDSA":
        private = ed25519.Ed25519PrivateKey.generate()
    else:
        curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
        private = ec.generate_private_key(curves[kind])
    return Pair(private, private.public_key())


@functools.cache
def _rsa(number: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048 + 0 * number)


def jwk(found: Pair, **members: object) -> dict[str, object]:
    """The public key as a member of a JWKS."""
    makers = {rsa.RSAPublicKey: RSAAlgorithm, ec.EllipticCurvePublicKey: ECAlgorithm}
    maker: Any = next((m for kind, m in makers.items() if isinstance(found.public, kind)), None)
    return {**(maker or OKPAlgorithm).to_jwk(found.public, as_dict=True), **members}


def oct_jwk(secret: bytes, **members: object) -> dict[str, object]:
    """A shared secret as a member of a JWKS."""
    return {"kty": "oct", "k": b64(secret).decode(), **members}


def jwks(*keys: Mapping[str, object]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def claims(**changes: object) -> dict[str, object]:
    """Claims that are right at ``NOW``; a change to None leaves a claim out."""
    whole = {"exp": NOW + 60, "groups": ["admin"], **changes}
    return {name: value for name, value in whole.items() if value is not None}


def sign(
    key: Any, algorithm: str, given: object = None, headers: dict[str, Any] | None = None
) -> str:
    """A JWT with these claims, whatever they are."""
    payload = given if isinstance(given, bytes) else json.dumps(given or claims()).encode()
    return jwt.PyJWS().encode(payload, key, algorithm, headers)


def b64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def unsigned(header: object, given: object, signature: bytes = b"") -> str:
    """Three parts put together by hand."""
    parts = (json.dumps(header).encode(), json.dumps(given).encode(), signature)
    return b".".join(map(b64, parts)).decode()


def write(path: Path, data: bytes | str, mode: int = 0o600) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    path.chmod(mode)
    return path


def verifier(directory: Path, key: bytes | None = None, **settings: Any) -> TokenVerifier:
    """A verifier as the settings make it, with the key in a file that only its owner reads."""
    if key is not None:
        settings["jwt_key"] = write(directory / "key", key)
    return verifier_from(Settings(collection="docs", **settings))


def parts_of(token: str) -> Iterable[str]:
    """What must stand in no message: the parts of a token and pieces of them."""
    for part in token.split("."):
        if len(part) >= 8:
            yield part
            yield part[:12]
