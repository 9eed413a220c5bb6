"""What the rules of `lint` find."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from bytemill.tokenizer.explanation import show_token

Level: TypeAlias = Literal["error", "warning", "note"]


class Example(NamedTuple):
    """A token that a rule concerns, and why."""

    id: int
    token: bytes
    why: str = ""

    def __str__(self) -> str:
        return f"{self.id} {show_token(self.token)}" + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True)
class Finding:
    """What a rule has found."""

    rule: str
    level: Level
    message: str
    examples: list[Example] = field(default_factory=list[Example])
    """All tokens concerned, in the order of their ids or of importance."""

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        tokens = [{"id": each.id, "token": show_token(each.token), "why": each.why} for each in self.examples]
        return {"rule": self.rule, "level": self.level, "message": self.message, "tokens": tokens}


@dataclass(frozen=True)
class Lint:
    """The findings of all rules, errors first."""

    findings: list[Finding]
    n_tokens: int

    def plus(self, *findings: Finding) -> Lint:
        """Return the findings and further ones."""
        order: dict[Level, int] = {"error": 0, "warning": 1, "note": 2}
        all_findings = sorted([*self.findings, *findings], key=lambda finding: order[finding.level])
        return Lint(all_findings, self.n_tokens)

    def count(self, level: Level) -> int:
        """Return the number of findings of a level."""
        return sum(finding.level == level for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as JSON values."""
        return {
            "n_tokens": self.n_tokens,
            "n_errors": self.count("error"),
            "n_warnings": self.count("warning"),
            "findings": [finding.to_dict() for finding in self.findings],
        }
