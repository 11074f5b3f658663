"""What is left out of a tree by its path alone: by a preset, ``.mintignore``, ``--exclude``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pathspec import GitIgnoreSpec

from chromafuse.domain.errors import IngestError
from chromafuse.ingest.report import printable

MINTIGNORE = ".mintignore"

_VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".jj"})
_TOOLS = frozenset({"node_modules", ".venv", "__pycache__", ".DS_Store"})
# https://mintlify.com/docs/organize/mintignore, "Default ignored patterns"
_MINTLIFY_TOOLS = frozenset(
    {".github", ".claude", ".agents", ".idea", ".vscode", ".cache"}
    | {"build", "dist", "coverage", "tmp", "temp"}
)
_MINTLIFY_FILES = frozenset({"readme.md", "license.md", "contributing.md", "changelog.md"})
_SNIPPET_DIRS = frozenset({"snippets", "_snippets"})


def is_version_control(name: str) -> bool:
    """Return whether ``name`` is a directory or file of a version control system."""
    return name in _VERSION_CONTROL


def is_in_snippets(rel: str) -> bool:
    """Return whether ``rel`` stands in a directory of snippets."""
    return not _SNIPPET_DIRS.isdisjoint(rel.split("/")[:-1])


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a path is left out.

    ``rescue`` tells that something below it may be taken all the same, so that a directory must
    be looked through.
    """

    reason: str
    rescue: bool


@dataclass(frozen=True, slots=True)
class NamedPages:
    """The paths a navigation names; they bring a page back that only the preset leaves out."""

    stems: frozenset[str]
    directories: frozenset[str]

    @classmethod
    def of(cls, pages: Collection[str]) -> NamedPages:
        """Return them for the entries ``pages``."""
        directories = set()
        for page in pages:
            cut = page.find("/")
            while cut >= 0:
                directories.add(page[:cut])
                cut = page.find("/", cut + 1)
        # `foo` may mean `foo/index`
        return cls(frozenset(pages), frozenset(directories | set(pages)))

    def __contains__(self, rel: str) -> bool:
        stem = rel.removesuffix(".mdx").removesuffix(".md")
        if stem == rel:
            return False
        return rel in self.stems or stem in self.stems or stem.removesuffix("/index") in self.stems


NO_PAGES = NamedPages.of(())


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one ingest; build with ``make_rules``."""

    include: GitIgnoreSpec
    exclude: GitIgnoreSpec
    mintignore: GitIgnoreSpec
    mintlify: bool
    snippets: bool
    named: NamedPages

    def includes(self, rel: str) -> bool:
        """Return whether ``include`` names ``rel`` or a directory above it."""
        return bool(self.include.check_file(rel).include)

    def brings_back(self, rel: str) -> bool:
        """Return whether the file ``rel`` is taken although a directory above it is left out."""
        return self.includes(rel) or rel in self.named

    def judge(self, rel: str, *, directory: bool) -> Verdict | None:
        """Return why ``rel`` is left out, or None."""
        name = rel.rpartition("/")[2]
        if is_version_control(name):
            return Verdict("belongs to version control", rescue=False)
        path = rel + "/" if directory else rel
        if self.exclude.check_file(path).include:
            return Verdict("excluded as asked", rescue=False)
        if self.includes(path):
            return None
        asked = len(self.include) > 0
        if self.mintlify and self.mintignore.check_file(path).include:
            return Verdict("named in .mintignore", rescue=asked)
        reason = self._preset(name, directory)
        if reason is None or (not directory and rel in self.named):
            return None
        return Verdict(reason, rescue=asked or (directory and rel in self.named.directories))

    def judge_target(self, rel: str, link: str) -> str | None:
        """Return why the symlink ``link`` to the file ``rel`` is left out with it, or None.

        Only what somebody left out by name counts: a page may well be a link to a README.
        """
        parts = rel.split("/")
        paths = ["/".join(parts[:end]) + "/" for end in range(1, len(parts))] + [rel]
        if any(self.exclude.check_file(path).include for path in paths):
            return "symlink to a file that is excluded as asked"
        if not self.mintlify or self.includes(link) or any(map(self.includes, paths)):
            return None
        if any(self.mintignore.check_file(path).include for path in paths):
            return "symlink to a file that is named in .mintignore"
        return None

    def _preset(self, name: str, directory: bool) -> str | None:
        if name in _TOOLS or (self.mintlify and name in _MINTLIFY_TOOLS):
            return "belongs to a tool, not to the docs"
        if not self.mintlify:
            return None
        if name == MINTIGNORE:
            return "configures what is left out"
        if name.lower() in _MINTLIFY_FILES:
            return "describes the repository, not a page"
        if directory and name in _SNIPPET_DIRS and not self.snippets:
            return "holds snippets, not pages"
        return None


def make_rules(
    *,
    include: Iterable[str],
    exclude: Iterable[str],
    mintignore: Iterable[str],
    mintlify: bool,
    snippets: bool,
    named: NamedPages,
) -> Rules:
    """Return rules of gitignore-style patterns; raises ``IngestError`` if one is malformed."""
    return Rules(
        include=_spec(include, "--include"),
        exclude=_spec(map(_inside, exclude), "--exclude"),
        mintignore=_spec(map(_inside, mintignore), MINTIGNORE),
        mintlify=mintlify,
        snippets=snippets,
        named=named,
    )


def _inside(pattern: str) -> str:
    """Return ``pattern`` such that pathspec, like git, does not match ``a`` itself by ``a/**``.

    Otherwise ``a`` would be pruned and a later ``!a/b`` without effect.
    """
    return pattern.rstrip()[:-1] if pattern.rstrip().endswith("/**") else pattern


def _spec(patterns: Iterable[str], origin: str) -> GitIgnoreSpec:
    lines = list(patterns)
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        reason = printable(str(error))
        raise IngestError(f"{origin}: a pattern cannot be understood: {reason}") from None
