"""Formatting of sizes, counts, times and rates, and parsing of counts."""

from __future__ import annotations

import re

_BYTE_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
_COUNT_UNITS = ("", " k", " M", " G", " T")
_COUNT_SCALES = {"k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}


def format_bytes(n_bytes: float) -> str:
    """Format a size in decimal units (1 kB is 1,000 bytes) with three significant digits.

    >>> format_bytes(512), format_bytes(1_115_394), format_bytes(23_400_000_000)
    ('512 bytes', '1.12 MB', '23.4 GB')
    """
    return "1 byte" if n_bytes == 1 else _scaled(n_bytes, _BYTE_UNITS, " ")


def format_count(n: int) -> str:
    """Format a count exactly, in groups of three digits.

    >>> format_count(1115394)
    '1,115,394'
    """
    return f"{n:,}"


def parse_count(text: str) -> int:
    """Parse a count such as 32000, 32k or 1.5M. Units are powers of 1000: k, M, G or B, T.

    Raises:
        ValueError: The text is not a whole number.

    >>> [parse_count(text) for text in ("32000", "50_257", "32k", "1.5M", "10B")]
    [32000, 50257, 32000, 1500000, 10000000000]
    """
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?([kmgbt])", text.strip().lower().replace("_", ""), re.ASCII)
    if match is None:
        try:
            return int(text)
        except ValueError:
            raise ValueError(f'"{text}" is not a count: write it like 32000, 32k or 1.5M') from None
    whole, fraction, unit = match[1], match[2] or "", match[3]
    n, rest = divmod(int(whole + fraction) * _COUNT_SCALES[unit], 10 ** len(fraction))
    if rest:
        raise ValueError(f'"{text}" is not a whole number')
    return n


def format_seconds(seconds: float) -> str:
    """Format a time, from microseconds to hours.

    >>> [format_seconds(t) for t in (0.00042, 0.0312, 3.14159, 75, 7_325)]
    ['0.42 ms', '31.2 ms', '3.14 s', '1 min 15 s', '2 h 02 min']
    """
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.5:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_rate(amount: float, seconds: float, unit: str) -> str:
    """Format an amount per second.

    Args:
        amount: The amount.
        seconds: The time it took.
        unit: "bytes" for MB/s and the like, or a plural noun such as "tokens".

    >>> format_rate(250_000_000, 2, "bytes"), format_rate(31_744, 0.5, "merges")
    ('125 MB/s', '63.5 k merges/s')
    """
    rate = amount / seconds if seconds > 0 else 0.0
    if unit == "bytes":
        return f"{format_bytes(rate)}/s"
    return f"{_scaled(rate, _COUNT_UNITS, '')} {unit}/s"


def format_ratio(ratio: float) -> str:
    """Format a ratio such as bytes per token with two decimals.

    >>> format_ratio(4.0567)
    '4.06'
    """
    return f"{ratio:.2f}"


def format_share(share: float) -> str:
    """Format a share of 1 as a percentage. A small share is not rounded to 0.

    >>> format_share(0.5), format_share(0.0312), format_share(0.00001), format_share(0.0)
    ('50.0 %', '3.1 %', '< 0.1 %', '0 %')
    """
    if share == 0:
        return "0 %"
    return "< 0.1 %" if share < 0.0005 else f"{share * 100:.1f} %"


def plural(n: int, noun: str) -> str:
    """Format a count with its noun.

    >>> plural(1, "token"), plural(2_000, "token"), plural(0, "byte")
    ('1 token', '2,000 tokens', '0 bytes')
    """
    return f"{n:,} {noun if n == 1 else noun + 's'}"


def _scaled(value: float, units: tuple[str, ...], space: str) -> str:
    """Format with three digits, in the unit that leaves one to three of them before the point."""
    power = 0
    # 999.5 would round to 1000.
    while value >= 999.5 and power < len(units) - 1:
        value /= 1000
        power += 1
    digits = (
        f"{value:.0f}"
        if power == 0 or value >= 99.95
        else f"{value:.1f}"
        if value >= 9.995
        else f"{value:.2f}"
    )
    return f"{digits}{space}{units[power]}"
