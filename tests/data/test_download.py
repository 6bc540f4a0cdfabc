"""Corpora from a web server on loopback."""

import hashlib
import io
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lmkit.cli import download as command_module
from lmkit.data.download import SOURCES, PublicFile, download
from lmkit.data.text_files import DOWNLOADABLE
from lmkit.errors.user_error import UserError

TEXT = b"".join(b"line %d of the corpus\n" % number for number in range(2_000))


class Host(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files = {"corpus.txt": TEXT}
        self.break_after: int | None = None
        self.requests: list[str] = []

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Answer(BaseHTTPRequestHandler):
    server: Host

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        self.server.requests.append(name)
        if name not in self.server.files:
            return self.send_error(404)
        content = self.server.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: self.server.break_after])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Host() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def plain(host: Host, content: bytes = TEXT) -> dict[str, tuple[PublicFile, ...]]:
    return {"penn": (PublicFile("train.txt", sha256(content), host.address("corpus.txt")),)}


def archived(host: Host, members: dict[str, bytes]) -> dict[str, tuple[PublicFile, ...]]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"wiki.{name}.tokens", content)
    host.files["texts.zip"] = buffer.getvalue()
    return {
        "wikitext-2": tuple(
            PublicFile(
                f"{name}.txt", sha256(content), host.address("texts.zip"), f"wiki.{name}.tokens"
            )
            for name, content in members.items()
        )
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_once_and_checked(host, tmp_path):
    for _ in range(2):
        folder = download("penn", tmp_path / "new" / "root", plain(host))
    assert folder == tmp_path / "new" / "root" / "penn"
    assert (folder / "train.txt").read_bytes() == TEXT
    assert names(folder) == ["train.txt"]
    assert host.requests == ["corpus.txt"]


def test_members_of_one_archive_become_the_splits(host, tmp_path):
    members = {"train": TEXT, "valid": b"valid\n", "test": b"test\n"}
    folder = download("wikitext-2", tmp_path, archived(host, members))
    assert {path.stem: path.read_bytes() for path in folder.iterdir()} == members
    (folder / "valid.txt").unlink()
    assert download("wikitext-2", tmp_path, archived(host, members)) == folder
    assert (folder / "valid.txt").read_bytes() == b"valid\n"
    assert host.requests == ["texts.zip"] * 2


def test_another_file_of_that_name_is_refused_and_kept(host, tmp_path):
    (tmp_path / "penn").mkdir()
    (tmp_path / "penn" / "train.txt").write_text("mine")
    with pytest.raises(UserError, match=r"train\.txt is there already and is not the published"):
        download("penn", tmp_path, plain(host))
    assert (tmp_path / "penn" / "train.txt").read_text() == "mine"
    assert host.requests == []


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("another", r"does not send the published file, or the connection broke: the SHA-256"),
        ("broken", r"does not send the published file, or the connection broke|cannot be fetched"),
        ("gone", r"corpus\.txt cannot be fetched: Not Found; try again later"),
        ("no zip", r"does not send a zip file with wiki\.train\.tokens in it"),
        ("no member", r"does not send a zip file with wiki\.train\.tokens in it"),
        ("another member", r"connection broke: the SHA-256 of train\.txt is"),
    ],
)
def test_what_is_not_the_published_file_leaves_nothing_behind(host, tmp_path, case, message):
    sources = archived(host, {"train": TEXT}) if "member" in case or "zip" in case else plain(host)
    if case == "broken":
        host.break_after = 1000
    elif case == "gone":
        del host.files["corpus.txt"]
    elif case == "no member":
        archived(host, {"valid": TEXT})
    elif case == "another member":
        archived(host, {"train": b"something else"})
    else:
        host.files |= {"corpus.txt": b"something else", "texts.zip": b"<html>moved</html>"}
    (corpus,) = sources
    with pytest.raises(UserError, match=message) as caught:
        download(corpus, tmp_path, sources)
    assert "\n" not in str(caught.value)
    assert names(tmp_path / corpus) == []


def test_a_host_that_cannot_be_reached_and_a_root_that_is_a_file_are_one_line(tmp_path, host):
    with Host() as closed:
        sources = plain(closed)
    with pytest.raises(UserError, match=r"cannot be fetched: .*[Rr]efused"):
        download("penn", tmp_path, sources)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot make the folder .*file/penn: Not a directory"):
        download("penn", tmp_path / "file", plain(host))


def test_a_folder_that_cannot_be_written_is_named_unless_all_is_there(host, tmp_path, monkeypatch):
    def denied(**_):
        raise PermissionError(13, "Permission denied")

    download("penn", tmp_path / "whole", plain(host))
    monkeypatch.setattr(tempfile, "TemporaryDirectory", denied)
    assert download("penn", tmp_path / "whole", plain(host)) == tmp_path / "whole" / "penn"
    with pytest.raises(UserError, match=r"/penn cannot be written: Permission denied"):
        download("penn", tmp_path, plain(host))


def test_command_line(host, tmp_path, monkeypatch, lmkit, refused):
    monkeypatch.setattr(command_module, "SOURCES", plain(host))
    assert f"LMKIT_DATA={tmp_path}" in lmkit("download", "penn", f"root={tmp_path}")
    (tmp_path / "penn" / "train.txt").write_text("mine")
    monkeypatch.setenv("LMKIT_DATA", str(tmp_path))
    assert refused("download", "penn").startswith(f"{tmp_path}/penn/train.txt is there already")


def test_every_corpus_that_can_be_read_gives_all_splits():
    assert set(SOURCES) == {*DOWNLOADABLE, "word_similarity"}
    for corpus in DOWNLOADABLE:
        assert {each.name for each in SOURCES[corpus]} == {"train.txt", "valid.txt", "test.txt"}
    assert len(SOURCES["word_similarity"]) == 13
    assert all(each.url.startswith("https://") for of in SOURCES.values() for each in of)


@pytest.mark.realdata
@pytest.mark.parametrize("corpus", sorted(SOURCES))
def test_hashes_are_those_of_the_real_files(corpus, data_root):
    for each in SOURCES[corpus]:
        assert sha256((data_root / corpus / each.name).read_bytes()) == each.sha256
