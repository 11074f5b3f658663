"""What a file must contain for a pattern to match, dialect by dialect."""

from __future__ import annotations

import pytest

from chromafuse.domain.pattern import (
    ALL,
    And,
    Fold,
    Literal,
    Needs,
    Or,
    Program,
    Query,
    analyse,
    matches,
)

UTF8 = {b"LC_ALL": b"C.UTF-8"}


def no_file(_path: bytes) -> bytes | None:
    return None


def query(
    *words: str | bytes, program: Program = Program.GREP, env: dict[bytes, bytes] | None = None
) -> Query:
    argv = [word if isinstance(word, bytes) else word.encode() for word in words]
    return analyse(
        program,
        [b"-r", *argv] if program is Program.GREP else argv,
        UTF8 if env is None else env,
        no_file,
    ).query


def shown(found: Query) -> object:
    """The query without its types: text, a set for an Or, a tuple for an And."""
    if isinstance(found, Literal):
        return found.text
    if isinstance(found, Or):
        return {shown(part) for part in found.parts}
    if isinstance(found, And):
        return tuple(shown(part) for part in found.parts)
    return None


BASIC: list[tuple[str, object]] = [
    ("foo", "foo"),
    ("foo bar", "foo bar"),
    ("", None),
    ("foo\n", None),
    ("foo\nbar", {"foo", "bar"}),
    ("foo\n.", None),
    ("^foo$", "foo"),
    ("a^b$c", {"abc", "a^bc", "ab$c", "a^b$c"}),
    (r"a\(.*c\)", ("a", "c")),
    (r"_hkey\|_hval", {"_hkey", "_hval"}),
    (r"colou\?r", {"color", "colour"}),
    (r"ab*c", ("a", "c")),
    (r"abc*d", ("ab", "d")),
    (r"abc\+d", ("abc", "cd")),
    (r"ab\{2\}c", "abbc"),
    (r"ab\{2,\}c", ("abb", "bbc")),
    (r"ab\{0,2\}c", ("a", "c")),
    (r"ab\{,2\}c", ("a", "c")),
    (r"ab\{0\}c", ("a", "c")),
    (r"ab\{2,1\}c", ("a", "c")),
    (r"ab\{x\}c", None),
    (r"ab\{2c", None),
    ("*foo", "foo"),
    (r"\(*foo\)", "foo"),
    ("^*foo", "foo"),
    (r"x\|*foo", {"x", "foo"}),
    ("a+b?c{1}|(d)", "a+b?c{1}|(d)"),
    (r"\(ab\)\{2\}c", "ababc"),
    (r"\(ab\)*c", "c"),
    (r"\(ab\)\1c", ("ab", "c")),
    (r"\<foo\>\b\B\`", "foo"),
    (r"foo\wbar\Sbaz", ("foo", "bar", "baz")),
    (r"a\.b\*c\[d\]", "a.b*c[d]"),
    (r"\-\-save", "--save"),
    (r"foo\dbar", ("foo", "bar")),
    ("foo\\", None),
    ("foo\\\nbar", None),
    ("foo[", None),
    (r"foo\(", None),
    (r"foo\)", None),
    ("messages[0]", "messages0"),
    ("[Tt]oken", {"Token", "token"}),
    ("a[]]b", "a]b"),
    ("a[^]]b", ("a", "b")),
    ("a[^b]c", ("a", "c")),
    ("a[b-d]e", ("a", "e")),
    ("a[-b]e", {"a-e", "abe"}),
    (r"a[\n]e", {r"a\e", "ane"}),
    ("a[[:alpha:]]e", ("a", "e")),
    ("a[[.-.]]e", ("a", "e")),
    ("a[[=b=]]e", ("a", "e")),
    ("a[é]e", ("a", "e")),
    ("x[[:alpha:]", None),
    ("a.b.c", ("a", "b", "c")),
    ("é*a", "a"),
    ("naïve", "naïve"),
]

EXTENDED: list[tuple[str, object]] = [
    ("foo_(bar_)?", "foo_"),
    (r"([0-9]{1,3}\.){3}[0-9]{1,3}", "."),
    (" ([abcde]+_)", ({" a", " b", " c", " d", " e"}, {"a_", "b_", "c_", "d_", "e_"})),
    ("streamText|streamObject", {"streamText", "streamObject"}),
    ("stream(Text|Object)s", {"streamTexts", "streamObjects"}),
    ("stream(Te.t|Object)s", ({"streamTe", "streamObject"}, {("Te", "t"), "Object"}, "ts")),
    ("use[A-Z][A-Za-z]+", "use"),
    ("^#{1,3} ", "# "),
    ("foo|", None),
    ("foo|.", None),
    ("(foo|bar)?", None),
    ("(foo|bar)*baz", "baz"),
    ("(a|b)(c|d)", {"ac", "ad", "bc", "bd"}),
    ("a|b|ab", {"a", "b"}),
    ("()foo", "foo"),
    ("(|foo)bar", "bar"),
    ("foo{", "foo{"),
    ("function foo\\(.*\\) {", ("function foo(", ") {")),
    ("fo{x}", "fo{x}"),
    ("fo{1", ("f", "1")),
    ("fo{,3}x", ("f", "x")),
    ("fo{2}?x", {"fx", "foox"}),
    ("fo{2}*x", ("f", "x")),
    ("*foo", "foo"),
    ("(*foo)", "foo"),
    ("(?:foo)", ":foo"),
    ("foo)", None),
    ("(foo", None),
    ("a^b", {"ab", "a^b"}),
    (r"a\+b", "a+b"),
    (r"(a)(b)\2", "ab"),
    ("(foo.*){2}bar", ("foo", "bar")),
    ("x{3}", "xxx"),
    ("(x.y){2,}", "yx"),
    ("(" * 60 + "a" + ")" * 60, None),
    (".*", None),
    ("[0-9]+", None),
]

PERL: list[tuple[str, object]] = [
    (r"\d\d\d000", "000"),
    (r"(?<=use)Chat\b", "Chat"),
    (r"foo(?=bar)", "foo"),
    (r"foo(?!bar)baz", "foobaz"),
    (r"(?:foo|bar)baz", {"foobaz", "barbaz"}),
    (r"(?<name>foo)\k<name>", None),
    (r"(?P<name>foo)bar", "foobar"),
    (r"(?>foo)bar", "foobar"),
    (r"(?i)foo", "foo"),
    (r"x(?i)foo", None),
    (r"(?x)foo", None),
    (r"foo(?#bar)", None),
    (r"(*UTF)foo", None),
    (r"\Qfoo\E", None),
    (r'"version": "\K[^"]+', '"version": "'),
    (r"foo\x41bar", ("foo", "bar")),
    (r"foo\pLbar", ("foo", "bar")),
    (r"foo\p{Lu}bar", ("foo", "bar")),
    (r"foo\cAbar", None),
    (r"(a)\1b", ("a", "b")),
    (r"a\tb", "a\tb"),
    (r"a\nb", ("a", "b")),
    (r"a+?b", "ab"),
    (r"ab*+c", ("a", "c")),
    (r"ab{2}+c", "abbc"),
    (r"ab{,2}c", ("a", "c")),
    (r"ab{2 , 3}c", ("a", "c")),
    (r"a{x}b", "a{x}b"),
    (r"gpt-\d[\w.-]*", "gpt-"),
    (r"a[\]b]c", {"a]c", "abc"}),
    (r"a[^\]]c", ("a", "c")),
    (r"a[\Qb\E]c", None),
    (r"a[[:alpha:]b]c", ("a", "c")),
    (r"a[[b]c", {"a[c", "abc"}),
    (r"a|b)c", None),
    ("foo\\", None),
]

RUST: list[tuple[str, object]] = [
    ("streamText", "streamText"),
    (r"use[A-Z]\w+", "use"),
    (r"foo|bar", {"foo", "bar"}),
    (r"(?P<n>foo)bar", "foobar"),
    (r"(?i)foo", "foo"),
    (r"foo(?i)bar", None),
    (r"a[b&&c]d", None),
    (r"a[b--c]d", None),
    (r"a[[b]c]d", None),
    (r"a[bc]d", {"abd", "acd"}),
    (r"\bfoo\b", "foo"),
    (r"\b{start}foo", None),
    (r"foo\u{61}", None),
    (r"foo\x61bar", ("foo", "bar")),
    (r"(?=foo)bar", None),
    (r"foo\nbar", ("foo", "bar")),
    ("foo\nbar", None),
    (r"a**b", "b"),
    (r"fo{2,}x", ("foo", "oox")),
    (r"foo\{", "foo{"),
    ("", None),
]


@pytest.mark.parametrize(("pattern", "expected"), BASIC)
def test_basic(pattern: str, expected: object) -> None:
    assert shown(query("-e", pattern)) == expected


@pytest.mark.parametrize(("pattern", "expected"), EXTENDED)
def test_extended(pattern: str, expected: object) -> None:
    assert shown(query("-E", "-e", pattern)) == expected


@pytest.mark.parametrize(("pattern", "expected"), PERL)
def test_perl(pattern: str, expected: object) -> None:
    assert shown(query("-P", "-e", pattern)) == expected


@pytest.mark.parametrize(("pattern", "expected"), RUST)
def test_rust(pattern: str, expected: object) -> None:
    assert shown(query("-e", pattern, program=Program.RG)) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("foo.*[bar]", "foo.*[bar]"),
        ("a\\", "a\\"),
        ("foo\nbar", {"foo", "bar"}),
        ("foo\n", None),
        ("", None),
        ("x" * 300, "x" * 128),
    ],
)
def test_fixed(pattern: str, expected: object) -> None:
    found = query("-F", "-e", pattern)
    if isinstance(expected, str) and len(expected) == 128:
        assert isinstance(found, Literal)
        assert found.text == expected
    else:
        assert shown(found) == expected


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-E", "foo_(bar_)?"], "foo_"),
        ([r"a\(.*c\)"], "abc"),
        (["-iE", "e.x|ex"], "e-x"),
        (["-E", r"([0-9]{1,3}\.){3}[0-9]{1,3}"], "127.0.0.1"),
        (["-E", "TTGAGTCCAGGAG[ATCG]{2}C"], "TTGAGTCCAGGAGTAC"),
        (["-P", r"\d\d\d000"], "123000"),
        (["-E", " ([abcde]+_)"], "x ab_"),
        (["^static.*inode"], "first\nstatic int inode"),
        ([r"_hkey\|_hval"], "x_hval"),
        (["-w", r"foo\|bar"], "foo bar"),
        (["-i", "task"], "TA\u017f\u212a"),
        (["-i", "info"], "\u0130NFO"),
        (["-i", "\u00c5"], "\u212b"),
        (["-i", "\u03c3"], "\u03c2"),
        (["-iF", "\u00df"], "\u1e9e"),
    ],
)
def test_known_false_negatives_of_others(words: list[str], text: str) -> None:
    found = query(*words)
    assert found != ALL
    assert matches(found, text.encode())
    assert not matches(found, b"nothing")


@pytest.mark.parametrize(
    ("words", "env", "expected"),
    [
        (["foo"], {}, Literal("foo")),
        (["-i", "Key1"], {}, Literal("key1", Fold.ASCII)),
        (["-i", "Key1"], {b"LANG": b"de_DE.UTF-8"}, Literal("key1", Fold.UNICODE)),
        (["-i", "Key1"], {b"LC_ALL": b"", b"LANG": b"en_US.utf8@x"}, Literal("key1", Fold.UNICODE)),
        (["-i", "Key1"], {b"LC_ALL": b"C", b"LANG": b"C.UTF-8"}, Literal("key1", Fold.ASCII)),
        (["-i", "Key1"], {b"LC_CTYPE": b"POSIX", b"LANG": b"C.UTF-8"}, Literal("key1", Fold.ASCII)),
        (["foo"], {b"LANG": b"de_DE"}, ALL),
        (["foo"], {b"LC_ALL": b"ja_JP.eucJP"}, ALL),
        (["-i", "123"], UTF8, Literal("123")),
        (["-y", "ab", "--no-ignore-case"], UTF8, Literal("ab")),
        (["-i", "\u00e9"], {}, Literal("\u00e9")),
        (["\u00e9"], {}, Literal("\u00e9")),
        (["a\u00e9*b"], {}, And((Literal("a"), Literal("b")))),
        (["-E", "\u00e9?"], {}, ALL),
        ([b"\xff"], UTF8, ALL),
        ([b"ab\xff"], {}, Literal("ab")),
        ([b"\xc3"], {}, ALL),
        (["-i", "x\u0259y"], UTF8, And((Literal("x", Fold.UNICODE), Literal("y", Fold.UNICODE)))),
    ],
)
def test_locale(words: list[str | bytes], env: dict[bytes, bytes], expected: Query) -> None:
    assert query(*words, env=env) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-S", "foo"], Literal("foo", Fold.UNICODE)),
        (["-S", "Foo"], Literal("Foo")),
        (["-S", r"foo\S"], Literal("foo", Fold.UNICODE)),
        (
            ["-S", "-e", "Foo", "-e", "bar"],
            Or((Literal("foo", Fold.UNICODE), Literal("bar", Fold.UNICODE))),
        ),
        (["-i", "-s", "foo"], Literal("foo")),
        (["-s", "-i", "foo"], Literal("foo", Fold.UNICODE)),
        (["-P", r"foo(?=x)"], Literal("foo")),
        (["--engine=auto", "foo.x"], And((Literal("foo"), Literal("x")))),
        (["--engine=auto", r"fo\<o"], ALL),
        (["-P", "--no-pcre2", "foo"], Literal("foo")),
        (["-e", "(?i)foo", "-e", "bar"], ALL),
    ],
)
def test_ripgrep_modes(words: list[str], expected: Query) -> None:
    assert query(*words, program=Program.RG) == expected


def test_literals_have_no_newline_and_no_nul() -> None:
    found = analyse(Program.GREP, [b"-rf", b"p"], UTF8, lambda _path: b"foo\0bar\n")
    assert found.needs is Needs.EVERYTHING
