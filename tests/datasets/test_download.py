"""Downloads: whole in the end or not there at all, whatever the server and the connection do."""

import errno
import hashlib
import json
import shutil
import socket
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from bytemill.datasets.download import DownloadProgress, download
from bytemill.errors import DownloadError, OutputError

from .file_server import CONTENT, PATH, FileServer, Reply

SHA256 = hashlib.sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2


class Fetcher:
    """Calls `download` and keeps what it reported and how long it would have paused."""

    def __init__(self, server: FileServer, target: Path) -> None:
        self.server = server
        self.url, self.target = f"{server.url}/{PATH}", target
        self.pauses: list[float] = []
        self.progress: list[DownloadProgress] = []

    def __call__(self, **options: Any) -> None:
        arguments: dict[str, Any] = {
            "n_bytes": len(CONTENT),
            "sha256": SHA256,
            "progress": self.progress.append,
        }
        download(self.url, self.target, pause=self.pauses.append, **{**arguments, **options})

    @property
    def left(self) -> list[str]:
        """What stands in the folder."""
        return sorted(path.name for path in self.target.parent.iterdir())

    @property
    def partial(self) -> Path:
        return self.target.with_name(f"{self.target.name}.partial")


@pytest.fixture
def fetch(server: FileServer, tmp_path: Path) -> Fetcher:
    return Fetcher(server, tmp_path / "texts" / "sample.txt")


def leave_half(fetch: Fetcher) -> None:
    """Interrupts a download in its middle."""

    def interrupt(progress: DownloadProgress) -> None:
        if progress.done >= HALF:
            raise KeyboardInterrupt

    fetch.server.replies.append(Reply(hold_after=HALF))
    with pytest.raises(KeyboardInterrupt):
        fetch(progress=interrupt)
    fetch.server.go_on.set()


def test_a_file_is_fetched_whole_and_nothing_else_stays(fetch: Fetcher, server: FileServer):
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert fetch.left == ["sample.txt"]
    [(path, headers)] = server.requests
    assert path == f"/{PATH}"
    assert headers["Accept-Encoding"] == "identity"
    assert "Range" not in headers
    assert {progress.step for progress in fetch.progress} == {"fetching", "checking"}
    assert fetch.progress[-1] == DownloadProgress("checking", len(CONTENT), len(CONTENT))


def test_a_connection_that_is_cut_is_taken_up_where_it_ended(fetch: Fetcher, server: FileServer):
    server.replies += [Reply(cut_after=100_000), Reply(cut_after=50_000)]
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-", "bytes=150000-"]
    assert [headers.get("If-Range") for _, headers in server.requests] == [None, '"first"', '"first"']
    assert fetch.pauses == [1.0, 1.0], "every byte that comes shows that it is worth while"


def test_a_connection_that_is_cut_without_a_length_is_taken_up_too(fetch: Fetcher, server: FileServer):
    server.says_length = False
    server.replies.append(Reply(cut_after=100_000))
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-"]


def test_an_interrupted_download_goes_on_in_the_next_call(fetch: Fetcher, server: FileServer):
    leave_half(fetch)
    assert fetch.left == ["sample.txt.partial", "sample.txt.partial.json"]
    kept = fetch.partial.stat().st_size
    assert fetch.partial.read_bytes() == CONTENT[:kept]
    assert kept >= HALF
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={kept}-"]
    assert fetch.left == ["sample.txt"]


def test_a_part_that_is_whole_already_is_checked_and_not_fetched(fetch: Fetcher, server: FileServer):
    fetch.target.parent.mkdir()
    fetch.partial.write_bytes(CONTENT)
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert server.requests == []


def test_a_server_without_ranges_sends_all_of_it_again(fetch: Fetcher, server: FileServer):
    leave_half(fetch)
    server.knows_ranges = False
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert len(server.requests) == 2


@pytest.mark.parametrize("heeds_if_range", [True, False])
def test_a_part_of_another_version_is_not_gone_on_with(
    fetch: Fetcher, server: FileServer, *, heeds_if_range: bool
):
    leave_half(fetch)
    fetch.partial.write_bytes(b"?" * HALF)
    server.etag, server.heeds_if_range = '"second"', heeds_if_range
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    # Not even the checksum was computed in vain: the ETag said it all.
    assert (
        sum(progress.step == "checking" and progress.done == len(CONTENT) for progress in fetch.progress) == 1
    )


def test_the_time_of_the_last_change_stands_in_for_a_weak_etag(fetch: Fetcher, server: FileServer):
    server.etag, server.last_modified = 'W/"weak"', "Tue, 01 Apr 2025 00:00:00 GMT"
    server.replies.append(Reply(cut_after=1000))
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert server.requests[1][1]["If-Range"] == server.last_modified


def test_a_part_without_its_notes_is_gone_on_with_and_checked(fetch: Fetcher, server: FileServer):
    fetch.target.parent.mkdir()
    fetch.partial.write_bytes(CONTENT[:1000])
    fetch.partial.with_name("sample.txt.partial.json").write_text("{dam")
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert server.ranges == ["bytes=1000-"]
    assert "If-Range" not in server.requests[0][1]


def test_a_damaged_part_is_thrown_away_and_all_is_fetched_once_more(fetch: Fetcher, server: FileServer):
    fetch.target.parent.mkdir()
    fetch.partial.write_bytes(b"?" + CONTENT[1:1000])
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert server.ranges == ["bytes=1000-", None]


def test_a_part_that_is_longer_than_the_file_is_thrown_away(fetch: Fetcher, server: FileServer):
    fetch.target.parent.mkdir()
    fetch.partial.write_bytes(CONTENT + b"?")
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert server.ranges == [None]


def test_a_range_that_the_server_cannot_satisfy_begins_it_again(fetch: Fetcher, server: FileServer):
    fetch.target.parent.mkdir()
    fetch.partial.write_bytes(CONTENT[:1000])
    server.replies.append(Reply(status=416))
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert server.ranges == ["bytes=1000-", None]


def test_an_answer_from_another_place_begins_it_again(fetch: Fetcher, server: FileServer):
    fetch.target.parent.mkdir()
    fetch.partial.write_bytes(CONTENT[:1000])
    server.replies.append(Reply(headers={"Content-Range": f"bytes 500-{len(CONTENT) - 1}/{len(CONTENT)}"}))
    fetch()
    assert fetch.target.read_bytes() == CONTENT


def test_a_file_with_another_checksum_is_refused_and_not_kept(fetch: Fetcher, server: FileServer):
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(DownloadError, match=r"its sha256 is [0-9a-f]{64}, not ") as caught:
        fetch()
    assert SHA256 in str(caught.value)
    assert fetch.left == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("says_length", [True, False])
@pytest.mark.parametrize("extra", [b"?", b"?" * 3_000_000])
def test_a_file_that_is_too_long_is_refused(
    fetch: Fetcher, server: FileServer, extra: bytes, *, says_length: bool
):
    server.content, server.says_length = CONTENT + extra, says_length
    with pytest.raises(DownloadError, match=f"bytes, not {len(CONTENT):,}"):
        fetch()
    assert fetch.left == []
    assert len(server.requests) == 1


def test_a_file_that_is_too_short_is_refused(fetch: Fetcher, server: FileServer):
    server.content = CONTENT[:-1]
    with pytest.raises(DownloadError, match=f"it has {len(CONTENT) - 1:,} bytes, not {len(CONTENT):,}"):
        fetch()
    assert fetch.left == []


def test_the_rest_of_a_file_that_has_grown_is_refused(fetch: Fetcher, server: FileServer):
    fetch.target.parent.mkdir()
    fetch.partial.write_bytes(CONTENT[:1000])
    server.content = CONTENT + b"?"
    with pytest.raises(DownloadError, match=f"it has {len(CONTENT) + 1:,} bytes"):
        fetch()


def test_a_file_that_is_not_there_is_not_asked_for_twice(fetch: Fetcher, server: FileServer):
    server.replies.append(Reply(status=404))
    with pytest.raises(DownloadError, match=r"the server says 404 \(Not Found\)"):
        fetch()
    assert len(server.requests) == 1
    assert fetch.left == []


def test_troubles_of_the_server_are_waited_for(fetch: Fetcher, server: FileServer):
    server.replies += [Reply(status=503), Reply(status=429, headers={"Retry-After": "7"}), Reply(status=500)]
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert fetch.pauses == [1.0, 7.0, 4.0]


def test_troubles_of_the_server_that_do_not_end_are_given_up(fetch: Fetcher, server: FileServer):
    server.replies += [Reply(status=503)] * 10
    with pytest.raises(DownloadError, match=r"says 503 \(Service Unavailable\) time and again"):
        fetch()
    assert fetch.pauses == [1.0, 2.0, 4.0, 8.0]
    assert fetch.left == []


def test_connections_that_end_before_a_byte_are_given_up_and_what_is_here_is_kept(
    fetch: Fetcher, server: FileServer
):
    server.replies += [Reply(cut_after=1000), *[Reply(cut_after=0)] * 10]
    with pytest.raises(
        DownloadError, match=r"does not go on: .*; 1.00 kB are here, and the same command goes on from there"
    ):
        fetch()
    assert fetch.partial.read_bytes() == CONTENT[:1000]
    server.replies.clear()
    fetch()
    assert fetch.target.read_bytes() == CONTENT


def test_a_redirection_is_followed_with_the_range(fetch: Fetcher, server: FileServer):
    elsewhere = Reply(location=f"{server.url}/elsewhere/sample.txt")
    server.replies += [elsewhere, Reply(cut_after=1000), elsewhere]
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert [path for path, _ in server.requests][1::2] == ["/elsewhere/sample.txt"] * 2
    assert server.ranges == [None, None, "bytes=1000-", "bytes=1000-"]


def test_redirections_in_a_circle_end(fetch: Fetcher, server: FileServer):
    server.replies += [Reply(location=f"{server.url}/{PATH}")] * 50
    with pytest.raises(DownloadError, match="the server says 302"):
        fetch()


def test_without_a_connection_there_is_one_error_at_once(fetch: Fetcher):
    with socket.socket() as unused:  # bound and not listening: nobody answers there
        unused.bind(("127.0.0.1", 0))
        fetch.url = f"http://127.0.0.1:{unused.getsockname()[1]}/{PATH}"
        with pytest.raises(DownloadError, match="cannot be reached: Connection refused"):
            fetch()
    assert fetch.pauses == []
    assert fetch.left == []


def test_a_host_without_an_address_is_one_error_at_once(fetch: Fetcher, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(DownloadError, match="cannot be reached: Name or service not known"):
        fetch()
    assert fetch.pauses == []


def test_a_disk_without_room_is_seen_before_anything_is_fetched(
    fetch: Fetcher, server: FileServer, monkeypatch: pytest.MonkeyPatch
):
    usage = namedtuple("usage", ["total", "used", "free"])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2000, 1000, 1000))
    with pytest.raises(OutputError, match=r"742 kB are needed in .*, and 1.00 kB are free") as caught:
        fetch()
    assert caught.value.errno == errno.ENOSPC
    assert server.requests == []
    assert fetch.left == []


def test_what_has_come_already_needs_no_room(
    fetch: Fetcher, server: FileServer, monkeypatch: pytest.MonkeyPatch
):
    fetch.target.parent.mkdir()
    fetch.partial.write_bytes(CONTENT[:-1000])
    usage = namedtuple("usage", ["total", "used", "free"])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2000, 1000, 1000))
    fetch()
    assert fetch.target.read_bytes() == CONTENT


@pytest.mark.parametrize("replace", [True, False])
def test_a_file_that_is_there_is_replaced_only_on_request(
    fetch: Fetcher, server: FileServer, *, replace: bool
):
    fetch.target.parent.mkdir()
    fetch.target.write_bytes(b"mine")
    fetch(replace=replace)
    assert fetch.target.read_bytes() == (CONTENT if replace else b"mine")
    assert fetch.left == ["sample.txt"]


def test_a_file_to_be_replaced_stands_until_the_new_one_is_whole(fetch: Fetcher, server: FileServer):
    fetch.target.parent.mkdir()
    fetch.target.write_bytes(b"mine")
    server.replies.append(Reply(status=404))
    with pytest.raises(DownloadError):
        fetch(replace=True)
    assert fetch.target.read_bytes() == b"mine"


def test_what_the_progress_raises_ends_the_download(fetch: Fetcher):
    def fail(progress: DownloadProgress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fetch(progress=fail)


def test_the_notes_say_by_what_the_server_knows_the_file(fetch: Fetcher):
    leave_half(fetch)
    notes = json.loads(fetch.partial.with_name("sample.txt.partial.json").read_text())
    assert notes == {"validator": '"first"'}
