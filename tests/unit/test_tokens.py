"""A token is accepted for exactly what it says, or refused with a reason that holds none of it."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chromafuse.domain.access import Grant, Identity
from chromafuse.domain.errors import ConfigError, TokenError
from chromafuse.tokens import MAX_TOKEN_BYTES, TokenVerifier, verifier_from
from tests.support.tokens import (
    NOW,
    SECRET,
    b64,
    claims,
    jwk,
    jwks,
    oct_jwk,
    pair,
    parts_of,
    sign,
    unsigned,
    verifier,
)

ADMIN = Grant(Identity(frozenset({"admin"}), signed_in=True), NOW + 60)
ED = pair("EdDSA")


def refusal(checker: TokenVerifier, token: str | bytes, now: float = NOW) -> str:
    """The reason for which the token is refused; never with a piece of the token in it."""
    with pytest.raises(TokenError) as caught:
        checker.identify(token, now)
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.exit_code == 11
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    whole = token if isinstance(token, str) else token.decode(errors="replace")
    assert not [part for part in parts_of(whole) if part in text]
    return text


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> TokenVerifier:
    """What accepts tokens of one Ed25519 key."""
    return verifier(tmp_path_factory.mktemp("keys"), ED.pem)


def token_with(given: object = None, headers: dict[str, Any] | None = None) -> str:
    return sign(ED.private, "EdDSA", given, headers)


# -- what is accepted


@pytest.mark.parametrize("algorithm", ["EdDSA", "ES256", "ES384", "ES512", "RS256"])
def test_a_token_of_each_kind_of_public_key(algorithm: str, tmp_path: Path) -> None:
    keys = pair(algorithm)
    for form in (keys.pem, jwks(jwk(keys)), json.dumps(jwk(keys)).encode()):
        found = verifier(tmp_path, form).identify(sign(keys.private, algorithm), NOW)
        assert found == ADMIN


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256", "PS384", "PS512"])
def test_other_algorithms_of_an_rsa_key_are_asked_for(algorithm: str, tmp_path: Path) -> None:
    keys = pair(algorithm)
    token = sign(keys.private, algorithm)
    assert verifier(tmp_path, keys.pem, jwt_algorithms=[algorithm]).identify(token, NOW) == ADMIN
    stated = jwks(jwk(keys, alg=algorithm))
    assert verifier(tmp_path, stated).identify(token, NOW) == ADMIN
    assert "algorithm" in refusal(verifier(tmp_path, keys.pem), token)
    only = verifier(tmp_path, keys.pem, jwt_algorithms=[algorithm])
    assert "algorithm" in refusal(only, sign(keys.private, "RS256"))


@pytest.mark.parametrize(("algorithm", "size"), [("HS256", 32), ("HS384", 48), ("HS512", 64)])
def test_a_shared_secret(algorithm: str, size: int, tmp_path: Path) -> None:
    secret = (SECRET * 2)[:size]
    token = sign(secret, algorithm)
    names = None if algorithm == "HS256" else [algorithm]
    for form in (secret, secret + b"\n", secret + b"\r\n", jwks(oct_jwk(secret))):
        assert verifier(tmp_path, form, jwt_algorithms=names).identify(token, NOW) == ADMIN
    assert "signature" in refusal(verifier(tmp_path, secret + b"\n\n", jwt_algorithms=names), token)


def test_the_token_may_be_bytes_and_the_clock_may_be_the_machine_s(tmp_path: Path) -> None:
    now = time.time()
    token = token_with(claims(exp=now + 1000)).encode()
    assert verifier(tmp_path, ED.pem).identify(token).expires == now + 1000


def test_a_set_of_keys_is_searched_by_kid(tmp_path: Path) -> None:
    rs, es, old = pair("RS256"), pair("ES256"), pair("EdDSA", 1)
    members = (jwk(rs, kid="r"), jwk(es, kid="e"), jwk(ED, kid="d"), jwk(old, kid="o"))
    checker = verifier(tmp_path, jwks(*members, oct_jwk(SECRET, kid="s")))
    signers = {"r": (rs.private, "RS256"), "e": (es.private, "ES256"), "s": (SECRET, "HS256"),
               "d": (ED.private, "EdDSA"), "o": (old.private, "EdDSA")}  # fmt: skip
    for kid, (key, algorithm) in signers.items():
        assert checker.identify(sign(key, algorithm, headers={"kid": kid}), NOW) == ADMIN
        for other in signers.keys() - {kid}:
            refusal(checker, sign(key, algorithm, headers={"kid": other}))
    assert "does not have" in refusal(checker, token_with(headers={"kid": "x"}))
    assert "which key" in refusal(checker, token_with())


def test_a_token_without_kid_and_a_set_with_one_key(tmp_path: Path) -> None:
    checker = verifier(tmp_path, jwks(jwk(ED, kid="d")))
    assert checker.identify(token_with(), NOW) == ADMIN
    assert "does not have" in refusal(checker, token_with(headers={"kid": "other"}))
    plain = verifier(tmp_path, ED.pem)
    assert plain.identify(token_with(headers={"kid": "any"}), NOW) == ADMIN


def test_keys_that_cannot_check_a_signature_here_are_passed_over(tmp_path: Path) -> None:
    other = pair("EdDSA", 1)
    members = (
        jwk(other, kid="enc", use="enc"), jwk(other, kid="ops", key_ops=["encrypt"]),
        {"kty": "XYZ", "kid": "x"}, {"kty": "OKP", "crv": "X25519", "x": "AA", "kid": "dh"},
        {"kty": "EC", "crv": ["P-256"]}, jwk(other, kid="alg", alg="RSA-OAEP"),
        jwk(ED, kid="d", use="sig", key_ops=["verify"]),
    )  # fmt: skip
    checker = verifier(tmp_path, jwks(*members))
    assert checker.identify(token_with(headers={"kid": "d"}), NOW) == ADMIN
    for kid in ("enc", "ops", "x", "dh", "alg"):
        token = sign(other.private, "EdDSA", headers={"kid": kid})
        assert "does not have" in refusal(checker, token)


# -- who signed


def test_a_signature_of_somebody_else_is_refused(checker: TokenVerifier) -> None:
    assert "signature" in refusal(checker, sign(pair("EdDSA", 1).private, "EdDSA"))


def test_claims_changed_behind_the_signature_are_refused(checker: TokenVerifier) -> None:
    header, _, signature = token_with().split(".")
    forged = b64(json.dumps(claims(groups=["root"])).encode()).decode()
    assert "signature" in refusal(checker, f"{header}.{forged}.{signature}")


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", None, 7, [], ["EdDSA"], {}])
def test_a_token_without_signature_is_refused(name: object, checker: TokenVerifier) -> None:
    for signature in (b"", b"x" * 64):
        token = unsigned({"alg": name, "typ": "JWT"}, claims(), signature)
        assert "algorithm" in refusal(checker, token)
    assert "algorithm" in refusal(checker, unsigned({"typ": "JWT"}, claims()))


@pytest.mark.parametrize("kind", ["RS256", "ES256", "EdDSA"])
def test_a_public_key_is_never_taken_for_a_secret(kind: str, tmp_path: Path) -> None:
    keys = pair(kind)
    forged = []
    for secret in (keys.pem, keys.pem.strip(), jwks(jwk(keys)), json.dumps(jwk(keys)).encode()):
        head = b64(b'{"alg":"HS256","typ":"JWT"}') + b"." + b64(json.dumps(claims()).encode())
        forged.append(head + b"." + b64(hmac.new(secret, head, hashlib.sha256).digest()))
    for form in (keys.pem, jwks(jwk(keys))):
        for token in forged:
            assert "algorithm" in refusal(verifier(tmp_path, form), token)
    with pytest.raises(ConfigError, match="no key for an algorithm"):
        verifier(tmp_path, keys.pem, jwt_algorithms=["HS256"])


@pytest.mark.parametrize(
    "headers",
    [{"crit": ["exp"]}, {"crit": []}, {"crit": ["b64"], "b64": True}, {"b64": False}],
)
def test_extensions_of_the_header_are_refused(
    headers: dict[str, object], checker: TokenVerifier
) -> None:
    head = {"alg": "EdDSA", "typ": "JWT", **headers}
    first = b64(json.dumps(head).encode()) + b"." + b64(json.dumps(claims()).encode())
    token = first + b"." + b64(ED.private.sign(first))
    assert "extensions" in refusal(checker, token)


@pytest.mark.parametrize(
    "header",
    [
        b"", b"[]", b"null", b"7", b'"EdDSA"', b'{"alg":"EdDSA","alg":"EdDSA"}', b'{"alg":NaN}',
        b"[" * 4_000, b'{"a":' * 2_000, b"\xff\xfe", '{"alg":"EdDSA"}'.encode("utf-16"), b"{",
        b'{"alg":"EdDSA","kid":' + b"9" * 5_000 + b"}",
    ],
    ids=lambda value: ascii(value)[:24],
)  # fmt: skip
def test_a_header_that_is_no_plain_object_is_malformed(
    header: bytes, checker: TokenVerifier
) -> None:
    first = b64(header) + b"." + b64(json.dumps(claims()).encode())
    assert refusal(checker, first + b"." + b64(ED.private.sign(first))) == "the token is malformed"


@pytest.mark.parametrize(
    "token",
    [
        ".", "..", "...", "a", "a.b", "a.b.c", "a.b.c.d.e", " ", "\n", "\0", "ä.ö.ü", "\ud800",
        "Bearer x", "eyJhbGciOiJFZERTQSJ9", "eyJhbGciOiJFZERTQSJ9..", "e30.e30.", "=.=.=",
    ],
    ids=ascii,
)  # fmt: skip
def test_what_is_no_token_is_refused(token: str, checker: TokenVerifier) -> None:
    assert "token" in refusal(checker, token)


def test_an_empty_token_is_refused(checker: TokenVerifier) -> None:
    assert refusal(checker, "") == refusal(checker, b"") == "the token is empty"


def test_blanks_around_a_token_do_not_belong_to_it(checker: TokenVerifier) -> None:
    for token in (token_with() + "\n", " " + token_with(), token_with() + " "):
        assert refusal(checker, token) == "the token is malformed"


def test_an_oversized_token_is_refused_unread(checker: TokenVerifier) -> None:
    big = token_with(claims(filler="x" * MAX_TOKEN_BYTES))
    assert "longer than 16,384 bytes" in refusal(checker, big)
    assert "longer than 16,384 bytes" in refusal(checker, "ä" * (MAX_TOKEN_BYTES // 2 + 1))
    fits = token_with(claims(filler="x" * 12_000))
    assert len(fits) < MAX_TOKEN_BYTES
    assert checker.identify(fits, NOW) == ADMIN


# -- when


def test_the_end_is_exact(checker: TokenVerifier) -> None:
    token = token_with(claims(exp=NOW))
    assert checker.identify(token, NOW - 0.001).expires == NOW
    assert refusal(checker, token, NOW) == "the token has expired"
    assert refusal(checker, token, NOW + 1e9) == "the token has expired"


def test_of_two_ends_the_earlier_counts(checker: TokenVerifier) -> None:
    for exp, other in ((NOW + 5, NOW + 9), (NOW + 9, NOW + 5)):
        token = token_with(claims(exp=exp, expiresAt=other))
        assert checker.identify(token, NOW).expires == NOW + 5
    assert checker.identify(token_with(claims(exp=None, expiresAt=NOW + 5)), NOW).expires == NOW + 5
    late = token_with(claims(exp=NOW + 9, expiresAt=NOW - 1))
    assert refusal(checker, late) == "the token has expired"


def test_a_token_without_an_end_is_refused(checker: TokenVerifier) -> None:
    assert "never expires" in refusal(checker, token_with(claims(exp=None)))


@pytest.mark.parametrize("name", ["exp", "expiresAt", "nbf", "iat"])
@pytest.mark.parametrize(
    "value",
    [
        True, False, "1900000000", [], {}, -1, 10**400, (NOW + 60) * 1000, "NaN", "Infinity",
        "1e999", "-0.5", "null",
    ],
    ids=lambda value: ascii(value)[:12],
)  # fmt: skip
def test_a_time_that_is_none_is_refused(name: str, value: object, checker: TokenVerifier) -> None:
    """Strings of JSON that Python's encoder would not write stand as they are."""
    text = value if value in ("NaN", "Infinity", "1e999", "-0.5", "null") else json.dumps(value)
    rest = json.dumps(claims(exp=None if name == "exp" else NOW + 60))[1:-1]
    refusal(checker, token_with(f'{{"{name}":{text},{rest}}}'.encode()))


def test_a_token_that_begins_later_is_refused(checker: TokenVerifier, tmp_path: Path) -> None:
    early, future = token_with(claims(nbf=NOW + 10)), token_with(claims(iat=NOW + 10))
    assert refusal(checker, early) == "the token is not valid yet"
    assert refusal(checker, future) == "the token was issued in the future"
    patient = verifier(tmp_path, ED.pem, jwt_leeway=10)
    for token in (early, future, token_with(claims(nbf=NOW, iat=NOW))):
        assert patient.identify(token, NOW) == ADMIN
        assert checker.identify(token, NOW + 10) == ADMIN
        refusal(patient, token, NOW - 11 if token in (early, future) else NOW - 60.5)
    assert refusal(patient, token_with(), NOW + 61) == "the token has expired"


# -- for whom


def test_the_audience(checker: TokenVerifier, tmp_path: Path) -> None:
    docs = verifier(tmp_path, ED.pem, audience="docs")
    for name in ("docs", ["docs"], ["api", "docs"]):
        assert docs.identify(token_with(claims(aud=name)), NOW) == ADMIN
        assert "--audience is not given" in refusal(checker, token_with(claims(aud=name)))
    for name in ("api", ["api"], [], "Docs", "docs ", "*"):
        assert "another audience" in refusal(docs, token_with(claims(aud=name)))
    assert "no audience" in refusal(docs, token_with())
    for other in (7, {"docs": 1}, ["docs", 7], True):
        assert "neither a text nor" in refusal(docs, token_with(claims(aud=other)))
    null = json.dumps({**claims(), "aud": None}).encode()
    assert "neither a text nor" in refusal(docs, token_with(null))


# -- who


def groups_of(checker: TokenVerifier, **changes: object) -> set[str]:
    found = checker.identify(token_with(claims(**changes)), NOW)
    assert found.identity.signed_in
    return set(found.identity.groups)


def test_groups_are_a_list_or_a_text(checker: TokenVerifier, tmp_path: Path) -> None:
    assert groups_of(checker, groups=["b", "a", "b"]) == {"a", "b"}
    assert groups_of(checker, groups=[]) == set()
    assert groups_of(checker, groups="") == set()
    assert groups_of(checker, groups="Admin, b c ,d") == {"Admin", "b c", "d"}
    assert groups_of(checker, groups=["a,b", " c "]) == {"a,b", " c "}
    blank = verifier(tmp_path, ED.pem, groups_delimiter=" ")
    assert groups_of(blank, groups="a,x b") == {"a,x", "b"}


def test_a_missing_groups_claim_is_signed_in_without_groups(checker: TokenVerifier) -> None:
    assert groups_of(checker, groups=None) == set()


def test_the_groups_claim_may_be_a_path(tmp_path: Path) -> None:
    checker = verifier(tmp_path, ED.pem, groups_claim="app.groups")
    assert groups_of(checker, app={"groups": ["a"]}) == {"a"}
    assert groups_of(checker, app={"groups": ["a"]}, **{"app.groups": ["literal"]}) == {"literal"}
    assert groups_of(checker, app={}) == groups_of(checker) == set()
    wrong: tuple[object, ...] = ([], "a", 7, True)
    for value in wrong:
        assert "not a JSON object" in refusal(checker, token_with(claims(app=value)))
    url = verifier(tmp_path, ED.pem, groups_claim="https://example.com/groups")
    assert groups_of(url, **{"https://example.com/groups": ["a"]}) == {"a"}
    assert groups_of(url) == set()


@pytest.mark.parametrize(
    "value",
    [
        7, True, {}, {"a": 1}, [7], ["a", None], ["a", ["b"]], [""], ["a", ""], "a,", ",", "a,,b",
        ["__chromafuse_nobody__"], "a,__chromafuse_nobody__", ["\ud800"], "\udfff",
    ],
    ids=ascii,
)  # fmt: skip
def test_groups_that_are_no_names_are_refused(value: object, checker: TokenVerifier) -> None:
    assert "not a list of names" in refusal(checker, token_with(claims(groups=value)))


def test_groups_that_are_null_are_refused(checker: TokenVerifier) -> None:
    text = json.dumps({"exp": NOW + 60, "groups": None}).encode()
    assert "not a list of names" in refusal(checker, token_with(text))


@pytest.mark.parametrize(
    "payload",
    [
        b"x", b"[]", b"null", b"7", b'"x"', b"[" * 3_000, b'{"a":' * 2_000, b"\xff",
        b'{"exp":1900000000,"exp":1900000000}', b'{"exp":1900000000,"x":NaN}',
        b'{"exp":1900000000,"x":' + b"9" * 5_000 + b"}", '{"exp":1900000000}'.encode("utf-16"),
    ],
    ids=lambda value: ascii(value)[:24],
)  # fmt: skip
def test_claims_that_are_no_plain_object_are_refused(
    payload: bytes, checker: TokenVerifier
) -> None:
    assert "claims are not" in refusal(checker, token_with(payload))


# -- nothing to check with


def test_without_key_and_list_every_token_is_refused(tmp_path: Path) -> None:
    nothing = verifier(tmp_path)
    assert not nothing.accepts_tokens
    text = refusal(nothing, token_with())
    assert text == "no token is accepted here (give --jwt-key or --tokens-file)"


@pytest.mark.parametrize("given", [{"jwt_algorithms": ["EdDSA"]}, {"audience": "docs"}])
def test_rules_for_jwts_without_a_key_are_an_error(given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without --jwt-key"):
        verifier(tmp_path, **given)


# -- whatever comes


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
CLAIMS = st.dictionaries(
    st.sampled_from(["exp", "nbf", "iat", "aud", "groups", "expiresAt", "x"]),
    JSON | st.sampled_from([NOW + 5, NOW - 5, ["a"], "a,b"]),
)


@given(token=st.text(max_size=60) | st.binary(max_size=60))
def test_no_text_is_a_token(token: str | bytes, checker: TokenVerifier) -> None:
    with pytest.raises(TokenError):
        checker.identify(token, NOW)


@given(
    header=JSON | st.fixed_dictionaries({"alg": JSON, "kid": JSON}), payload=JSON, tail=st.binary()
)
def test_no_unsigned_token_is_accepted(
    header: object, payload: object, tail: bytes, checker: TokenVerifier
) -> None:
    with pytest.raises(TokenError):
        checker.identify(unsigned(header, payload, tail), NOW)


@given(given=CLAIMS)
@settings(max_examples=200)
def test_signed_claims_are_a_grant_that_holds_or_a_refusal(
    given: dict[str, object], checker: TokenVerifier
) -> None:
    found, problem = ADMIN, ""
    try:
        found = checker.identify(token_with(json.dumps(given).encode()), NOW)
    except TokenError as error:
        problem = str(error)
    assert "\n" not in problem
    assert found.expires is not None
    assert found.expires > NOW
    assert all(found.identity.groups)


@given(data=st.data())
def test_one_changed_byte_makes_another_token(data: st.DataObject, checker: TokenVerifier) -> None:
    token = bytearray(token_with().encode())
    place = data.draw(st.integers(0, len(token) - 1))
    token[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(TokenError):
        checker.identify(bytes(token), NOW)


def test_the_verifier_takes_settings_of_any_kind(tmp_path: Path) -> None:
    class Plain:
        jwt_key = None
        jwt_algorithms = None
        jwt_leeway = 0.0
        audience = None
        groups_claim = "groups"
        groups_delimiter = ","
        tokens_file = None

    assert not verifier_from(Plain()).accepts_tokens
