"""Pseudorandom permutations computed element by element, without a list of the elements.

A shuffled list of the windows of 10¹² tokens takes gigabytes, and resuming takes the same list again. Here the
position of element i is a function of i and a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROUNDS = 6
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(value: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    """Hash with the finalizer of SplitMix64 (Steele, Lea & Flood 2014); every output bit depends on every input bit."""
    mixed = np.asarray(value, dtype=np.uint64)
    with np.errstate(over="ignore"):  # arithmetic is modulo 2⁶⁴
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def key_of(*numbers: int) -> int:
    """Hash numbers to a 64-bit key that depends on their order.

    >>> key_of(1, 2) != key_of(2, 1)
    True
    """
    key = np.uint64(0)
    with np.errstate(over="ignore"):
        for number in numbers:
            key = mix(key * _GOLDEN + np.uint64(number % 2**64) + _GOLDEN)[()]
    return int(key)


def permuted(numbers: NDArray[np.int64], n: int, key: int) -> NDArray[np.int64]:
    """Map numbers by the permutation of 0 … n − 1 that `key` selects.

    A Feistel network permutes the numbers of 2b bits, 2^2b ≥ n: each round keeps one half and XORs the other with a
    function of it, which is invertible for any function. A result of n or more is permuted again until it is below n
    (cycle walking). This is again a permutation: following the cycle of a number below n leads back below n, and two
    numbers on one cycle never meet. As 2^2b < 4n, it takes fewer than four rounds on average.

    Args:
        numbers: Numbers from 0 to n − 1, of any shape.
        n: Size of the permutation.
        key: Selects the permutation; see `key_of`.

    Raises:
        ValueError: A number is out of range.

    >>> sorted(permuted(np.arange(10), 10, key=7).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    numbers = np.asarray(numbers, dtype=np.int64)
    if n < 1 or (numbers.size and (numbers.min() < 0 or numbers.max() >= n)):
        raise ValueError(f"numbers to permute must be from 0 to {n - 1}")
    half_bits = np.uint64(max(1, ((n - 1).bit_length() + 1) // 2))
    round_keys = [np.uint64(key_of(key, index)) for index in range(_ROUNDS)]
    result = numbers.astype(np.uint64).reshape(-1)
    outside = np.ones(len(result), dtype=bool)
    while outside.any():
        result[outside] = _feistel(result[outside], half_bits, round_keys)
        outside = result >= n
    return result.astype(np.int64).reshape(numbers.shape)


def _feistel(
    numbers: NDArray[np.uint64], half_bits: np.uint64, round_keys: list[np.uint64]
) -> NDArray[np.uint64]:
    mask = np.uint64((1 << int(half_bits)) - 1)
    left, right = numbers >> half_bits, numbers & mask
    for round_key in round_keys:
        left, right = right, left ^ (mix(right ^ round_key) & mask)
    return (left << half_bits) | right
