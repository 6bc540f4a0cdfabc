from __future__ import annotations

import hashlib
import io
import re
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from lmkit.cli import download as command_module
from lmkit.cli.download import main
from lmkit.data.corpus import TextCorpus
from lmkit.data.download import download
from lmkit.data.sources import SOURCES, Download, Wanted
from lmkit.data.split_files import DOWNLOADABLE
from lmkit.errors.user_error import UserError

TEXT = b"".join(b"line %d of the corpus\n" % number for number in range(20_000))


class Host(ThreadingHTTPServer):
    """A web server on loopback that can be made to misbehave."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.knows_ranges = True
        self.sends_length = True
        self.break_after: int | None = None
        self.requests: list[tuple[str, str | None]] = []

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Answer(BaseHTTPRequestHandler):
    server: Host

    def do_GET(self) -> None:
        wanted_range = self.headers.get("Range")
        name = self.path.lstrip("/")
        self.server.requests.append((name, wanted_range))
        if name not in self.server.files:
            self.send_error(404)
            return
        content, start = self.server.files[name], 0
        if wanted_range and self.server.knows_ranges:
            start = int(wanted_range.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
        body = content[start:]
        self.send_response(206 if start else 200)
        if self.server.sends_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.break_after])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Host() as server:
        server.files["corpus.txt"] = TEXT
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def plain(host: Host, content: bytes = TEXT) -> dict[str, tuple[Download, ...]]:
    wanted = Wanted("train.txt", sha256(content))
    return {"penn": (Download(host.address("corpus.txt"), (wanted,)),)}


def fetch(root: Path, sources: dict[str, tuple[Download, ...]], corpus: str = "penn") -> Path:
    with Progress(console=Console(file=io.StringIO())) as progress:
        return download(corpus, root, progress, sources)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_file_is_fetched_checked_and_named(host, tmp_path):
    folder = fetch(tmp_path / "new" / "root", plain(host))
    assert folder == tmp_path / "new" / "root" / "penn"
    assert (folder / "train.txt").read_bytes() == TEXT
    assert names(folder) == ["train.txt"]


def test_what_is_there_is_not_fetched_again(host, tmp_path):
    fetch(tmp_path, plain(host))
    fetch(tmp_path, plain(host))
    assert len(host.requests) == 1


def test_another_file_of_that_name_is_refused_and_kept(host, tmp_path):
    (tmp_path / "penn").mkdir()
    (tmp_path / "penn" / "train.txt").write_text("mine")
    with pytest.raises(UserError, match=r"train\.txt is there already and is not the published"):
        fetch(tmp_path, plain(host))
    assert (tmp_path / "penn" / "train.txt").read_text() == "mine"
    assert host.requests == []


def test_broken_connection_is_taken_up_where_it_broke(host, tmp_path):
    host.break_after = 150_000
    fetch(tmp_path, plain(host))
    assert (tmp_path / "penn" / "train.txt").read_bytes() == TEXT
    starts = range(0, len(TEXT), 150_000)
    assert [wanted for _, wanted in host.requests] == [
        f"bytes={start}-" if start else None for start in starts
    ]


def test_interrupted_download_goes_on_in_the_next_process(host, tmp_path):
    (tmp_path / "penn").mkdir()
    (tmp_path / "penn" / "corpus.txt.part").write_bytes(TEXT[:1234])
    fetch(tmp_path, plain(host))
    assert host.requests == [("corpus.txt", "bytes=1234-")]
    assert (tmp_path / "penn" / "train.txt").read_bytes() == TEXT
    assert names(tmp_path / "penn") == ["train.txt"]


def test_download_stopped_before_its_check_is_not_fetched_again(host, tmp_path):
    (tmp_path / "penn").mkdir()
    (tmp_path / "penn" / "corpus.txt.part").write_bytes(TEXT)
    fetch(tmp_path, plain(host))
    assert host.requests == [("corpus.txt", f"bytes={len(TEXT)}-")]
    assert (tmp_path / "penn" / "train.txt").read_bytes() == TEXT


def test_server_without_ranges_is_asked_for_the_whole(host, tmp_path):
    host.knows_ranges = False
    (tmp_path / "penn").mkdir()
    (tmp_path / "penn" / "corpus.txt.part").write_bytes(TEXT[:1234])
    fetch(tmp_path, plain(host))
    assert (tmp_path / "penn" / "train.txt").read_bytes() == TEXT


def test_server_that_does_not_tell_the_length_will_do(host, tmp_path):
    host.sends_length = False
    fetch(tmp_path, plain(host))
    assert (tmp_path / "penn" / "train.txt").read_bytes() == TEXT


@pytest.mark.parametrize("damaged", [b"x" * 5000, b"x" * (len(TEXT) + 1)])
def test_damaged_part_is_thrown_away_and_fetched_anew(host, tmp_path, damaged):
    (tmp_path / "penn").mkdir()
    (tmp_path / "penn" / "corpus.txt.part").write_bytes(damaged)
    fetch(tmp_path, plain(host))
    assert host.requests == [("corpus.txt", f"bytes={len(damaged)}-"), ("corpus.txt", None)]
    assert (tmp_path / "penn" / "train.txt").read_bytes() == TEXT


def test_wrong_file_leaves_nothing_behind(host, tmp_path):
    with pytest.raises(UserError, match=r"does not send the published file.*train\.txt"):
        fetch(tmp_path, plain(host, content=b"something else"))
    assert names(tmp_path / "penn") == []


def test_connection_that_keeps_breaking_ends_with_what_to_do(host, tmp_path):
    host.break_after = 0
    (tmp_path / "penn").mkdir()
    (tmp_path / "penn" / "corpus.txt.part").write_bytes(TEXT[:1234])
    with pytest.raises(UserError, match=r"closed early; 1,234 bytes of it are kept"):
        fetch(tmp_path, plain(host))
    assert len(host.requests) == 3
    assert (tmp_path / "penn" / "corpus.txt.part").read_bytes() == TEXT[:1234]


def test_missing_address_is_one_line(host, tmp_path):
    del host.files["corpus.txt"]
    with pytest.raises(UserError, match=r"corpus\.txt answers 404 Not Found") as caught:
        fetch(tmp_path, plain(host))
    assert "\n" not in str(caught.value)


def test_host_that_cannot_be_reached_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Host() as closed:
        sources = plain(closed)
    with pytest.raises(UserError, match=r"cannot be fetched: .*[Rr]efused; 0 bytes"):
        fetch(tmp_path, sources)


def test_full_disk_is_one_line(host, tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    (tmp_path / "penn").mkdir()
    (tmp_path / "penn" / "corpus.txt.part").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"corpus\.txt\.part cannot be written: No space left"):
        fetch(tmp_path, plain(host))


def archived(host: Host, members: dict[str, bytes]) -> dict[str, tuple[Download, ...]]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"wikitext-2/wiki.{name}.tokens", content)
    host.files["wikitext-2-v1.zip"] = buffer.getvalue()
    wanted = tuple(
        Wanted(f"{split}.txt", sha256(content), f"wikitext-2/wiki.{split}.tokens")
        for split, content in members.items()
    )
    return {"wikitext-2": (Download(host.address("wikitext-2-v1.zip"), wanted),)}


def test_members_of_an_archive_become_the_splits(host, tmp_path):
    members = {"train": TEXT, "valid": b"valid\n", "test": b"test\n"}
    sources = archived(host, members)
    host.break_after = 10_000
    folder = fetch(tmp_path, sources, "wikitext-2")
    assert names(folder) == ["test.txt", "train.txt", "valid.txt"]
    for split, content in members.items():
        assert (folder / f"{split}.txt").read_bytes() == content


def test_archive_without_the_file_leaves_nothing_behind(host, tmp_path):
    sources = archived(host, {"train": TEXT})
    archived(host, {"valid": TEXT})
    with pytest.raises(UserError, match=r"not send a zip file with wikitext-2/wiki\.train\.tokens"):
        fetch(tmp_path, sources, "wikitext-2")
    host.files["wikitext-2-v1.zip"] = b"<html>moved</html>"
    with pytest.raises(UserError, match=r"does not send a zip file"):
        fetch(tmp_path, sources, "wikitext-2")
    assert names(tmp_path / "wikitext-2") == []


def test_command_line(host, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command_module, "SOURCES", plain(host))
    main(["penn", f"root={tmp_path}"])
    assert f"LMKIT_DATA={tmp_path}" in capsys.readouterr().out
    assert (tmp_path / "penn" / "train.txt").read_bytes() == TEXT
    (tmp_path / "penn" / "train.txt").write_text("mine")
    with pytest.raises(SystemExit, match=r"^1$"):
        main(["penn", f"root={tmp_path}"])
    assert re.search(
        r"^error: .*train\.txt is there already", capsys.readouterr().err, re.MULTILINE
    )


def test_command_line_takes_the_root_from_the_environment(host, tmp_path, monkeypatch):
    monkeypatch.setattr(command_module, "SOURCES", plain(host))
    monkeypatch.setenv("LMKIT_DATA", str(tmp_path))
    main(["penn"])
    assert names(tmp_path / "penn") == ["train.txt"]


def test_every_corpus_that_can_be_read_gives_all_splits():
    assert set(SOURCES) == {*DOWNLOADABLE, "word_similarity"}
    for corpus in DOWNLOADABLE:
        given = {wanted.name for source in SOURCES[corpus] for wanted in source.wanted}
        assert given == {"train.txt", "valid.txt", "test.txt"}
    assert len(SOURCES["word_similarity"]) == 13
    assert all(source.url.startswith("https://") for of in SOURCES.values() for source in of)


@pytest.mark.realdata
@pytest.mark.parametrize("corpus", sorted(SOURCES))
def test_hashes_are_those_of_the_real_files(corpus, data_root):
    for source in SOURCES[corpus]:
        for wanted in source.wanted:
            assert sha256((data_root / corpus / wanted.name).read_bytes()) == wanted.sha256


@pytest.mark.realdata
def test_downloaded_corpus_can_be_read(host, data_root, tmp_path):
    sources = []
    for source in SOURCES["penn"]:
        name = source.url.rsplit("/", 1)[-1]
        host.files[name] = (data_root / "penn" / source.wanted[0].name).read_bytes()
        sources.append(source._replace(url=host.address(name)))
    fetch(tmp_path, {"penn": tuple(sources)})
    original = TextCorpus("penn", str(data_root), "penn").fingerprint()
    assert TextCorpus("penn", str(tmp_path), "penn").fingerprint() == original
