"""Masks of personal data: e-mail addresses, telephone numbers, IP addresses and, by option, URLs.

>>> mask_emails("Write to ann@example.org, or to bob@example.org.")
('Write to |||EMAIL_ADDRESS|||, or to |||EMAIL_ADDRESS|||.', 2)
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bytemill.curation.steps import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bytemill.curation.steps import Page

EMAIL = "|||EMAIL_ADDRESS|||"
PHONE = "|||PHONE_NUMBER|||"
IP = "|||IP_ADDRESS|||"
URL = "|||URL|||"

# Every pattern begins where a run of its characters begins, so that a long run is read once.
_EMAIL = re.compile(
    r"(?<![\w.%+-])[A-Za-z0-9_%+-][\w.%+'-]{0,63}@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![\w-])"
)
_PHONE = re.compile(
    r"""(?<![\w.,/+$€£¥#=-])
    (?:
        \+[1-9]\d{0,2}(?:[ .-]?(?:\(\d{1,4}\)|\d{1,4})){2,6}     # international
      | (?:1[ .-]?)?(?:\([2-9]\d\d\)[ .-]{0,2}|[2-9]\d\d[ .-]?)\d{3}[ .-]?\d{4}   # North American
      | 0\d{1,4}[ /-]\d{2,4}(?:[ -]\d{2,4}){1,3}            # national, in groups
    )
    (?!\w|[.,/:-]\d|[ ]?[%€£¥])""",
    re.VERBOSE,
)
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = re.compile(rf"(?<![\w.-])(?:{_OCTET}\.){{3}}{_OCTET}(?!\w|\.\d|-\w)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f:]{3,39}(?:(?<=:)\d{1,3}(?:\.\d{1,3}){3})?(?![\w:]|\.\d)")
_URL = re.compile(r"(?<!\w)(?:https?://|ftp://|www\.)[^\s<>\"|]+", re.IGNORECASE)
_NOT_A_NUMBER = re.compile(
    r"(?:\b(?:v|ver|versions?|releases?|build|rev|isbn|issn|section|§)\b|§)[.:#]?\s*\Z", re.I
)
"""What before a number says that it is no telephone number and no address."""
_DATE = re.compile(r"(?:19|20)\d\d[ .-]?(?:0[1-9]|1[0-2])[ .-]?(?:0[1-9]|[12]\d|3[01])(?!\d)")
# What every match contains, found quickly: most texts have none.
_MAY_BE_PHONE = re.compile(r"\d[\d ().+/-]{5,}")
_MAY_BE_IPV4 = re.compile(r"\d\.\d{1,3}\.\d")
_MAY_BE_IPV6 = re.compile(r":[0-9A-Fa-f]{0,4}:")
_N_BEFORE = 16
_PHONE_DIGITS = range(7, 16)  # E.164 allows 15


def mask_emails(text: str) -> tuple[str, int]:
    """Replace e-mail addresses, and return the text and their number."""
    return _EMAIL.subn(EMAIL, text) if "@" in text else (text, 0)


def mask_phone_numbers(text: str) -> tuple[str, int]:
    """Replace telephone numbers: with a country code, North American ones, and national ones in groups of digits.

    Dates, prices, versions and numbers with other separators are no telephone numbers. Ten digits in a row are one if
    the first is 2 to 9.

    >>> mask_phone_numbers("(283) 182-3829, from 2024-03-15 on")
    ('|||PHONE_NUMBER|||, from 2024-03-15 on', 1)
    """
    return _masked(_PHONE, PHONE, text, _is_phone_number) if _MAY_BE_PHONE.search(text) else (text, 0)


def mask_ip_addresses(text: str) -> tuple[str, int]:
    """Replace IPv4 and IPv6 addresses. Numbers that a word such as "version" precedes are none.

    >>> mask_ip_addresses("192.0.2.146 and 2001:db8::1, with version 1.2.3.4")
    ('|||IP_ADDRESS||| and |||IP_ADDRESS|||, with version 1.2.3.4', 2)
    """
    # Addresses of version 6 may end with one of version 4.
    text, n_6 = _masked(_IPV6, IP, text, _is_ipv6) if _MAY_BE_IPV6.search(text) else (text, 0)
    text, n_4 = _masked(_IPV4, IP, text, lambda _: True) if _MAY_BE_IPV4.search(text) else (text, 0)
    return text, n_4 + n_6


def mask_urls(text: str) -> tuple[str, int]:
    """Replace URLs, without the punctuation behind them."""
    n_found = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal n_found
        n_found += 1
        found = match[0]
        return URL + found[len(found.rstrip(".,;:!?)]}'")) :]

    return _URL.sub(replaced, text), n_found


def _masked(
    pattern: re.Pattern[str], placeholder: str, text: str, is_one: Callable[[str], bool]
) -> tuple[str, int]:
    n_found = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal n_found
        start = match.start()
        if not is_one(match[0]) or _NOT_A_NUMBER.search(text, max(0, start - _N_BEFORE), start):
            return match[0]
        n_found += 1
        return placeholder

    return pattern.sub(replaced, text), n_found


def _is_phone_number(found: str) -> bool:
    n_digits = sum(character.isdigit() for character in found)
    return n_digits in _PHONE_DIGITS and not _DATE.match(found)


def _is_ipv6(found: str) -> bool:
    try:
        ipaddress.IPv6Address(found)
    except ValueError:
        return False
    groups = [group for group in found.split(":") if group]
    # `a::b` in a program and `::` in C++ are valid addresses too.
    return len(groups) >= 3 or (len(groups) == 2 and len(groups[0]) == 4 and any(map(str.isdigit, groups[0])))


@dataclass(frozen=True, kw_only=True)
class MaskSettings:
    """What is masked."""

    emails: bool = True
    phone_numbers: bool = True
    ip_addresses: bool = True
    urls: bool = False


class Mask:
    """Replaces personal data by placeholders, and counts them. It removes no document."""

    Settings: ClassVar = MaskSettings
    thresholds: ClassVar[frozenset[str]] = frozenset()
    measures: ClassVar[tuple[str, ...]] = ("urls", "emails", "ip_addresses", "phone_numbers")

    def __init__(self, settings: MaskSettings) -> None:
        # URLs first, which may contain the others.
        functions = (mask_urls, mask_emails, mask_ip_addresses, mask_phone_numbers)
        named = zip(self.measures, functions, strict=True)
        self._functions = [(name, function) for name, function in named if getattr(settings, name)]

    def measure(self, pages: Sequence[Page]) -> list[Measured]:
        """See `DocumentStep`."""
        return [self._measured(page.text) for page in pages]

    def _measured(self, text: str) -> Measured:
        values: dict[str, Any] = {}
        for name, function in self._functions:
            text, values[name] = function(text)
        return Measured(values, text if any(values.values()) else None)

    def failed(self, page: Page, values: dict[str, Any]) -> list[str]:  # noqa: ARG002
        """See `DocumentStep`."""
        return []
