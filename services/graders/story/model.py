"""The sentence model as it is served: a folder with an ONNX graph, its tokenizer and `about.json`.

`export.py` makes the folder from weights, once, and keeps it in the cache folder.

The folder says by hash what it was made of, so that a damaged or exchanged graph is a fault and not
another reward.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tokenizers import Tokenizer

from gradus.errors import InternalFault, wrap_exceptions
from gradus.resources import get_cache_folder

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
"""The one model: gate, probes and pair model were made for its vectors."""
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MAX_TOKENS = 256
"""A text's further tokens are dropped, as sentence-transformers drops them; those that mark its
ends are included in the count."""
FP32, PAIRS = "fp32", "pairs-fp32"
"""Graphs: the sentence model's and the pair model's."""
INNER_LAYER = 3
"""Counted from 1: `inner` is pooled from what this layer gives."""
ABOUT = "about.json"
TOKENIZER = "tokenizer.json"
ADAPTER = Path(__file__).with_name("pairs.safetensors")
"""What makes a pair model of the sentence model; made by `tools.story_model.train_pairs`."""
MAX_CHARS = 20_000
"""What is behind them is not looked at: no text of 256 tokens is that long, unless it is mostly
white space."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
_HASH = r"^[0-9a-f]{64}$"


class About(BaseModel):
    """What `about.json` says of the folder that it stands in."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    source: str
    """The hub's name of the model, or the folder that its weights came from."""
    tokenizer_sha256: Annotated[str, Field(pattern=_HASH)]
    exporter: str
    """Hash of the code that built the graph."""
    graphs: dict[str, Annotated[str, Field(pattern=_HASH)]]
    """Name -> hash of `model-<name>.onnx`."""


@dataclass(frozen=True, slots=True)
class ExportedModel:
    folder: Path
    about: About

    @property
    def revision(self) -> str:
        """Hash of weights, tokenizer and graph, 12 hexadecimal digits. Equal revisions mean equal
        vectors."""
        about = self.about
        parts = (WEIGHTS_SHA256, about.tokenizer_sha256, about.exporter, str(MAX_TOKENS))
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:12]

    def get_graph_path(self, name: str) -> Path:
        """Return the file of that graph. Raises InternalFault when there is none, or not the one
        described."""
        path = self.folder / f"model-{name}.onnx"
        if name not in self.about.graphs or not path.exists():
            message = (
                f"there is no {name} graph in {self.folder}: python -m"
                f" services.graders.story.export"
            )
            raise InternalFault(message, retryable=False)
        if hash_file(path) != self.about.graphs[name]:
            raise InternalFault(
                f"{path} is damaged or another model's: remove {self.folder}", retryable=False
            )
        return path

    def tokenizer(self, max_tokens: int = MAX_TOKENS) -> StoryTokenizer:
        """Cuts texts at `max_tokens`. Raises InternalFault when it is damaged."""
        path = self.folder / TOKENIZER
        if not path.exists() or hash_file(path) != self.about.tokenizer_sha256:
            raise InternalFault(f"{path} is missing, damaged or another model's", retryable=False)
        return StoryTokenizer(path, max_tokens)


class StoryTokenizer:
    """Texts -> ids of tokens, as sentence-transformers makes them. May be called from many
    threads."""

    def __init__(self, path: Path, max_tokens: int) -> None:
        with wrap_exceptions(InternalFault, f"{path} is no tokenizer"):
            self.tokenizer = Tokenizer.from_file(str(path))
            self.tokenizer.no_padding()
            self.tokenizer.enable_truncation(max_tokens)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return one list per text, in order. What is no character (half a surrogate pair) is read
        as U+FFFD."""
        # one by one: a batch would wake a pool of threads for microseconds of work
        read = (_SURROGATE.sub(_REPLACEMENT, text[:MAX_CHARS]) for text in texts)
        return [self.tokenizer.encode(text).ids for text in read]


def get_export_folder() -> Path:
    """Return where the cache folder has the export of this version, if it has one."""
    return get_cache_folder() / f"story-{compute_exporter_hash()}"


def read_folder(folder: Path) -> ExportedModel:
    """Raise InternalFault when its `about.json` cannot be used."""
    try:
        return ExportedModel(folder, About.model_validate_json((folder / ABOUT).read_bytes()))
    except (OSError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise InternalFault(f"{folder / ABOUT} cannot be used: {first}", retryable=False) from None


def compute_exporter_hash() -> str:
    """Hash of the code that builds graphs and of what it reads; a graph of another version is not
    used."""
    code = hash_file(Path(__file__).with_name("graph.py"))
    made_of = f"{code}{hash_file(ADAPTER)}{WEIGHTS_SHA256}{INNER_LAYER}"
    return hashlib.sha256(made_of.encode()).hexdigest()[:12]


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
