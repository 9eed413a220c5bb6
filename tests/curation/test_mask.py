"""Masks of personal data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytemill.curation.mask import (
    EMAIL,
    IP,
    PHONE,
    URL,
    Mask,
    MaskSettings,
    mask_emails,
    mask_ip_addresses,
    mask_phone_numbers,
    mask_urls,
)
from bytemill.curation.steps import Page


@pytest.mark.parametrize(
    "address",
    [
        "test@gmail.com",
        "first.last+tag@sub.example.co.uk",
        "o'neil@example.org",
        "user_1%x@example-site.museum",
        "jörg@example.org",
        "ann@bücher.de",
    ],
)
def test_emails_are_masked(address: str) -> None:
    assert mask_emails(f"Write to <{address}>, please.") == (f"Write to <{EMAIL}>, please.", 1)


@pytest.mark.parametrize(
    "text",
    ["a@b", "@handle and user@", "x @ y.com", "3@4.5", "git@host:path", "a@-b.org", f"{EMAIL} is kept"],
)
def test_other_signs_are_no_emails(text: str) -> None:
    assert mask_emails(text) == (text, 0)


@pytest.mark.parametrize(
    "number",
    [
        "2831823829",
        "(283)-182-3829",
        "(283) 182 3829",
        "283-182-3829",
        "283.182.3829",
        "1-800-555-0199",
        "+1 (415) 555-2671",
        "+44 20 7946 0958",
        "+49 30 901820",
        "+4930901820",
        "+33 1 23 45 67 89",
        "030 1234 5678",
        "01 23 45 67 89",
        "0151/123 45 67",
    ],
)
def test_phone_numbers_are_masked(number: str) -> None:
    assert mask_phone_numbers(f"Call {number} today.") == (f"Call {PHONE} today.", 1)
    assert mask_phone_numbers(f"Call ({number}).") == (f"Call ({PHONE}).", 1)


@pytest.mark.parametrize(
    "text",
    [
        "on 2024-03-15 and 15.03.2024",
        "on 2024 03 15",
        "from 20240315 to 20240316",
        "at 12:30:45",
        "version 10.0.19041.1234",
        "v283.182.3829",
        "it costs $2831823829",
        "it costs 2831823829 €",
        "1,234,567.89 dollars",
        "ISBN 978-0-306-40615-7",
        "ISBN: 2831823829",
        "1700000000 seconds",
        "2831823829123",
        "12345678901234567890",
        "pages 283-290",
        "0.2831823829",
        "RFC 2616 and 7231",
        "id-2831823829",
        f"{PHONE} is kept",
    ],
)
def test_other_numbers_are_no_phone_numbers(text: str) -> None:
    assert mask_phone_numbers(text) == (text, 0)


@pytest.mark.parametrize(
    "address",
    [
        "192.0.2.146",
        "8.8.8.8",
        "255.255.255.255",
        "2001:db8::1",
        "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
        "fe80::1",
        "2001:db8::192.0.2.33",
    ],
)
def test_addresses_are_masked(address: str) -> None:
    assert mask_ip_addresses(f"The server {address}.") == (f"The server {IP}.", 1)
    assert mask_ip_addresses(f"({address})") == (f"({IP})", 1)


@pytest.mark.parametrize(
    "text",
    [
        "version 1.2.3.4",
        "v1.2.3.4",
        "Release 10.0.0.1",
        "§ 1.2.3.4",
        "256.1.1.1",
        "1.2.3",
        "1.2.3.4.5",
        "lib-1.2.3.4-beta",
        "at 12:30:45",
        "std::vector and a::b",
        "00:1a:2b:3c:4d:5e",
        "::",
        f"{IP} is kept",
    ],
)
def test_other_dotted_numbers_are_no_addresses(text: str) -> None:
    assert mask_ip_addresses(text) == (text, 0)


def test_urls_are_masked_without_the_punctuation_behind_them() -> None:
    text = "See https://example.org/a?b=c#d, www.example.org. And (http://x.org/y)!"
    assert mask_urls(text) == (f"See {URL}, {URL}. And ({URL})!", 3)


@given(st.text(alphabet="a@.-+ 0123456789():|EMAIL_ADRSPHONUB", max_size=80))
def test_a_second_mask_changes_nothing(text: str) -> None:
    for function in (mask_emails, mask_phone_numbers, mask_ip_addresses, mask_urls):
        masked, _ = function(text)
        assert function(masked) == (masked, 0)


@pytest.mark.parametrize(
    "character", ["a", "1", "1 ", "1-", ":", "a:", "a.", "@", "a@", ".", "+1", "1.", "f:"]
)
def test_long_runs_take_linear_time(character: str) -> None:
    text = character * 200_000
    for function in (mask_emails, mask_phone_numbers, mask_ip_addresses, mask_urls):
        function(text)


def test_the_step_counts_what_it_masks_by_its_settings() -> None:
    text = "ann@example.org, 192.0.2.1, 283-182-3829, https://example.org"
    page = Page(text, "here", "0-0", len(text))
    [measured] = Mask(MaskSettings(phone_numbers=False, urls=True)).measure([page])
    assert measured.text == f"{EMAIL}, {IP}, 283-182-3829, {URL}"
    assert measured.values == {"urls": 1, "emails": 1, "ip_addresses": 1}
    [unchanged] = Mask(MaskSettings()).measure([Page("nothing", "here", "0-0", 7)])
    assert unchanged.text is None
