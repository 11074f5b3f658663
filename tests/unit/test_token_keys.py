"""A key file is used for what it is, or refused before anything is believed because of it."""

from __future__ import annotations

import base64
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from chromafuse.domain.errors import ConfigError
from chromafuse.tokens.keys import MAX_KEY_BYTES, Key, load_keys
from tests.support.tokens import NOW, SECRET, Pair, jwk, jwks, oct_jwk, pair, sign, verifier, write


def keys_in(
    directory: Path, data: bytes, wanted: list[str] | None = None, mode: int = 0o600
) -> tuple[Key, ...]:
    return load_keys(write(directory / "key", data, mode), wanted)


def refusal(
    directory: Path, data: bytes, wanted: list[str] | None = None, mode: int = 0o600
) -> str:
    with pytest.raises(ConfigError) as caught:
        keys_in(directory, data, wanted, mode)
    text = str(caught.value)
    assert "\n" not in text
    assert data[:24].decode(errors="replace").strip() not in text
    return text


def certificate(keys: Pair) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "docs")])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(keys.public)
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2120, 1, 1, tzinfo=UTC))
        .sign(keys.private, hashes.SHA256())
    )
    return built.public_bytes(Encoding.PEM)


def private_pem(keys: Pair) -> bytes:
    found = keys.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert isinstance(found, bytes)
    return found


@pytest.mark.parametrize(
    ("kind", "names"),
    [("EdDSA", {"EdDSA"}), ("ES256", {"ES256"}), ("ES384", {"ES384"}), ("ES512", {"ES512"}),
     ("RS256", {"RS256"})],
)  # fmt: skip
def test_a_key_decides_the_algorithm(kind: str, names: set[str], tmp_path: Path) -> None:
    keys = pair(kind)
    for form in (keys.pem, b"\xef\xbb\xbf" + keys.pem, b"Bag Attributes\n" + keys.pem):
        (found,) = keys_in(tmp_path, form)
        assert found.algorithms == names
    (found,) = keys_in(tmp_path, jwks(jwk(keys, kid="one")))
    assert (set(found.algorithms), found.kid) == (names, "one")


def test_a_certificate_and_an_old_form_of_rsa_keys(tmp_path: Path) -> None:
    keys = pair("RS256")
    old = keys.public.public_bytes(Encoding.PEM, PublicFormat.PKCS1)
    for form in (certificate(keys), old):
        assert verifier(tmp_path, form).identify(sign(keys.private, "RS256"), NOW)


def test_algorithms_can_be_narrowed_and_must_fit(tmp_path: Path) -> None:
    rs = pair("RS256")
    (found,) = keys_in(tmp_path, rs.pem, ["RS256", "PS256"])
    assert found.algorithms == {"RS256", "PS256"}
    for wanted in (["ES256"], ["RS256", "ES256"], ["HS256"]):
        assert "no key for an algorithm" in refusal(tmp_path, rs.pem, wanted)
    for wanted in (["none"], ["rs256"], ["RS256", "XX"], []):
        assert "not supported" in refusal(tmp_path, rs.pem, wanted)
    both = jwks(jwk(rs, kid="r"), jwk(pair("EdDSA"), kid="e"))
    assert [key.kid for key in keys_in(tmp_path, both, ["EdDSA"])] == ["e"]
    stated = jwks(jwk(rs, alg="RS256"))
    assert "no key for an algorithm" in refusal(tmp_path, stated, ["PS256"])


def test_a_private_key_is_refused(tmp_path: Path) -> None:
    for kind in ("RS256", "ES256", "EdDSA"):
        assert "private key" in refusal(tmp_path, private_pem(pair(kind)))
        assert "private key" in refusal(tmp_path, private_pem(pair(kind)) + pair(kind).pem)
    assert "private key" in refusal(tmp_path, jwks(jwk(pair("EdDSA"), d="AAAA")))
    assert "private key" in refusal(tmp_path, jwks(jwk(pair("RS256"), use="enc", p="AAAA")))


def test_several_keys_are_no_pem_file(tmp_path: Path) -> None:
    assert "several PEM blocks" in refusal(tmp_path, pair("EdDSA").pem + pair("ES256").pem)


def test_weak_keys_are_refused(tmp_path: Path) -> None:
    small = rsa.generate_private_key(65537, 1024)  # noqa: S505  # that is the point
    weak = Pair(small, small.public_key())
    assert "less than 2048 bits" in refusal(tmp_path, weak.pem)
    assert "less than 2048 bits" in refusal(tmp_path, jwks(jwk(weak)))
    for secret, wanted in ((SECRET[:31], None), (SECRET, ["HS384"]), (SECRET, ["HS256", "HS512"])):
        assert "too short a secret" in refusal(tmp_path, secret, wanted)
        assert "too short a secret" in refusal(tmp_path, secret + b"\n", wanted)
        assert "too short a secret" in refusal(tmp_path, jwks(oct_jwk(secret)), wanted)


def test_keys_of_other_kinds_are_refused(tmp_path: Path) -> None:
    private: list[Any] = [
        x25519.X25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256K1()),
        dsa.generate_private_key(2048),
    ]  # fmt: skip
    for key in private:
        pem = Pair(key, key.public_key()).pem
        assert "kind that is not supported" in refusal(tmp_path, pem)


@pytest.mark.parametrize("kind", ["EdDSA", "ES256", "RS256"])
def test_a_public_key_in_another_form_does_not_pass_for_a_secret(kind: str, tmp_path: Path) -> None:
    keys = pair(kind)
    der = keys.public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ssh = keys.public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    body = b"\n".join(keys.pem.split(b"\n")[1:-2])
    forms = [
        der, base64.b64encode(der), base64.encodebytes(der), body, ssh, keys.pem[:-20],
        keys.pem[3:], keys.pem.replace(b"\n", b"\\n"), keys.pem.decode().encode("utf-16"),
        b" " + der, json.dumps([jwk(keys)]).encode(), json.dumps({"a": [jwk(keys)]}).encode(),
    ]  # fmt: skip
    for form in forms:
        text = refusal(tmp_path, form)
        assert "secret" not in text or "form" in text or "short" in text, form[:40]


@pytest.mark.parametrize(
    "data",
    [
        b"{", b"{}", b'{"keys":[]}', b'{"keys":{}}', b'{"keys":[7]}', b'{"keys":null}',
        b'{"keys":[{}]}', b'{"keys":[{"kty":"RSA"}]}', b'{"keys":[{"kty":"RSA","n":7,"e":"AQAB"}]}',
        b'{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}', b'{"kty":["RSA"]}',
        b'{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"}]}', b'{"keys":[{"kty":"oct"}]}',
        b'{"keys":[{"kty":"oct","k":""}]}', b'{"a":1,"a":2}', b'{"a":' * 30_000, b'{"keys":NaN}',
        b'{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA","kid":7}]}', b"{\xff}",
    ],
    ids=lambda value: ascii(value)[:40],
)  # fmt: skip
def test_a_malformed_set_of_keys_is_refused(data: bytes, tmp_path: Path) -> None:
    assert "--jwt-key" in refusal(tmp_path, data)


def test_one_kid_has_one_key(tmp_path: Path) -> None:
    one, two = jwk(pair("EdDSA"), kid="k"), jwk(pair("ES256"), kid="k")
    assert "one kid" in refusal(tmp_path, jwks(one, two))
    assert "one kid" in refusal(tmp_path, jwks(jwk(pair("EdDSA")), jwk(pair("ES256"))))
    assert keys_in(tmp_path, jwks(one, {**two, "use": "enc"}))[0].kid == "k"


# -- the file


@pytest.mark.parametrize("data", [b"", b"\n", b"  \n\t"])
def test_an_empty_file_is_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is empty"):
        keys_in(tmp_path, data)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--jwt-key .*none cannot be read: No such file"):
        load_keys(tmp_path / "none", None)
    with pytest.raises(ConfigError, match=r"not a regular file|Is a directory"):
        load_keys(tmp_path, None)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError, match="not a regular file"):
        load_keys(tmp_path / "fifo", None)
    with pytest.raises(ConfigError, match="not a path"):
        load_keys(Path("a\0b"), None)
    with pytest.raises(ConfigError, match="longer than"):
        keys_in(tmp_path, b"x" * (MAX_KEY_BYTES + 1))


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_key_that_others_can_write_is_refused(mode: int, tmp_path: Path) -> None:
    for data in (pair("EdDSA").pem, SECRET, jwks(jwk(pair("EdDSA")))):
        assert "can be written by others" in refusal(tmp_path, data, mode=mode)


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    for data in (
        SECRET,
        jwks(oct_jwk(SECRET)),
        jwks(jwk(pair("EdDSA")), oct_jwk(SECRET, use="enc")),
    ):
        for mode in (0o604, 0o644):
            assert "can be read by others" in refusal(tmp_path, data, mode=mode)
    for data in (pair("EdDSA").pem, jwks(jwk(pair("EdDSA")))):
        assert keys_in(tmp_path, data, mode=0o644)


def test_root_may_share_a_secret_with_the_group_of_the_daemon(tmp_path: Path) -> None:
    file = write(tmp_path / "key", SECRET, 0o640)
    info = file.stat()
    if info.st_uid == 0:
        assert load_keys(file, None)
        os.chown(file, 0, 64_999)
    with pytest.raises(ConfigError, match="can be read by others"):
        load_keys(file, None)


def used_or_refused(directory: Path, data: bytes) -> bool:
    try:
        return all(key.algorithms for key in keys_in(directory, data))
    except ConfigError as error:
        return "\n" not in str(error)


JWK = st.dictionaries(
    st.sampled_from(["kty", "crv", "x", "y", "n", "e", "k", "kid", "use", "key_ops", "alg", "d"]),
    st.sampled_from(
        ["RSA", "EC", "OKP", "oct", "P-256", "Ed25519", "sig", "RS256", "AQAB", "A" * 43]
    )
    | st.text(max_size=8)
    | st.none()
    | st.integers()
    | st.lists(st.text(max_size=4), max_size=2),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@given(members=st.lists(JWK, max_size=3))
def test_any_set_of_keys_is_used_or_refused(
    members: list[dict[str, object]], directory: Path
) -> None:
    assert used_or_refused(directory, jwks(*members))


@given(data=st.binary(max_size=80), change=st.integers(0, 300))
def test_any_file_is_used_or_refused(data: bytes, change: int, directory: Path) -> None:
    pem = pair("ES256").pem
    for form in (data, b"{" + data, b"-----BEGIN PUBLIC KEY-----\n" + data,
                 pem[:change] + data + pem[change:]):  # fmt: skip
        assert used_or_refused(directory, form)
