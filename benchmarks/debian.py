"""Files of Debian packages, fetched with apt into a private folder; nothing on the machine is installed."""

import lzma
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path


class PackageError(Exception):
    """A package cannot be had here; the message says why in one line."""


def apt_is_here() -> bool:
    """True where packages can be fetched and opened."""
    return shutil.which("apt-get") is not None and shutil.which("dpkg-deb") is not None


def _apt(folder: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    lists, archives = folder / "lists", folder / "archives"
    for private in (lists / "partial", archives / "partial"):
        private.mkdir(parents=True, exist_ok=True)
    options = (
        f"Dir::State::Lists={lists}",
        f"Dir::Cache={archives}",
        "APT::Sandbox::User=",
        "Acquire::Languages=none",
    )
    command = ["apt-get", "-q", *(word for option in options for word in ("-o", option)), *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def _archive_of(package: str, folder: Path) -> Path | None:
    found = sorted((folder / "packages").glob(f"{package}_*.deb"), key=lambda path: path.stat().st_mtime_ns)
    return found[-1] if found else None


def fetch(packages: list[str], folder: Path) -> dict[str, Path | PackageError]:
    """The archive of each package, fetched into `folder`/packages unless it is there - or why not."""
    archives = folder / "packages"
    archives.mkdir(parents=True, exist_ok=True)
    results: dict[str, Path | PackageError] = {}
    listed = any((folder / "lists").glob("*_Packages*"))
    for package in packages:
        archive = _archive_of(package, folder)
        if archive is None:
            if not listed:
                _apt(folder, "update")
                listed = True
            answer = _apt(folder, "download", package, cwd=archives)
            archive = _archive_of(package, folder)
            if archive is None:
                lines = [line for line in answer.stderr.splitlines() if line.startswith("E:")]
                results[package] = PackageError(lines[0] if lines else "apt-get download gave no file")
                continue
        results[package] = archive
    return results


def version_of(archive: Path) -> str:
    """The package's version, from the archive's file name."""
    return archive.name.split("_")[1].replace("%3a", ":")


def files_of(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """(path, content) of the regular files that `wanted` accepts, those of a source tree in a .tar.xz too.

    Raises PackageError for an archive that cannot be read to its end.
    """
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as unpacking:
        try:
            with tarfile.open(fileobj=unpacking.stdout, mode="r|") as package:
                yield from _members(package, wanted)
        except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
            raise PackageError(f"{archive.name}: {error}") from error
        finally:
            if unpacking.stdout is not None:
                unpacking.stdout.close()


def _members(archive: tarfile.TarFile, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    for member in archive:
        if not member.isfile():
            continue
        path = re.sub(r"^\./", "", member.name)
        source_tree = path.endswith(".tar.xz")
        if not source_tree and not wanted(path):
            continue
        content = archive.extractfile(member)
        if content is None:
            continue
        if source_tree:
            with tarfile.open(fileobj=content, mode="r|xz") as tree:
                yield from _members(tree, wanted)
        else:
            yield path, content.read()
