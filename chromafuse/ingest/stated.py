"""What is stated about a page's access, and by whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from chromafuse.domain.access import HIDDEN, AccessRule, all_of, rule_from_marks
from chromafuse.ingest.frontmatter import parse_frontmatter
from chromafuse.ingest.selection import Listed


@dataclass(frozen=True, slots=True)
class Stated:
    """A rule, and what states it, in words for a person; ``why`` is empty for the default."""

    rule: AccessRule
    why: str = ""

    def together(self, other: Stated) -> Stated:
        """Return what holds if both do."""
        return Stated(all_of([self.rule, other.rule]), f"{self.why}; and {other.why}")


@dataclass(frozen=True, slots=True)
class Judged:
    """What holds for a page in the end, and what its author should know."""

    stated: Stated
    warnings: tuple[str, ...] = ()


def judge_page(text: str, inherited: Stated) -> Judged:
    """Return what holds for the page ``text``: its own marks, or else what it inherits."""
    front = parse_frontmatter(text)
    warnings = []
    if front.broken is not None:
        stated = Stated(HIDDEN, f"frontmatter: {front.broken}")
        warnings.append(f"hidden from everybody: {front.broken}")
    elif front.marks:
        rule, warning = rule_from_marks(front.marks, inherited.rule)
        why = f"frontmatter: {', '.join(sorted(front.marks))}"
        if warning is not None:
            warnings.append(warning)
            why += f"; {warning}"
        stated = Stated(rule, why)
    else:
        stated = inherited
    if front.commented_rule:
        warnings.append("an access mark in a comment of the frontmatter has no effect")
    return Judged(stated, tuple(warnings))


def stated_by_navigation(
    site: str, listed: Mapping[str, Listed], closed: Mapping[str, AccessRule]
) -> dict[str, Stated]:
    """Return what the navigation in the file ``site`` states of files."""
    stated = {
        rel: Stated(item.rule, f"{site}: {item.origin}")
        for rel, item in listed.items()
        if item.rule is not None
    }
    for rel, rule in closed.items():
        closing = Stated(rule, f"{site}: an entry closes pages of this name")
        before = stated.get(rel)
        stated[rel] = closing if before is None else before.together(closing)
    return stated


def unused(wins: Stated, loses: Stated | None) -> Iterator[str]:
    """Yield a warning if the rule that ``loses`` states is another one than the one that holds."""
    if loses is not None and loses.rule != wins.rule and loses.why not in wins.why:
        yield f"{loses.why} has no effect on it: it has marks of its own"
