"""WordPiece tokenization for pocket: English text to piece ids, and a fixed vector for each piece."""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

MAX_PIECES = 48
_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")
_MAX_PIECE_LENGTH = 40  # characters; nothing longer is a word


@dataclass(frozen=True, eq=False)
class WordPieceVocabulary:
    """The ids of word pieces (a piece inside a word begins with ##) and a vector for each."""

    ids: dict[str, int]
    vectors: Floats  # (pieces, width)

    def pieces(self, text: str) -> list[str]:
        """Split a text into pieces of the vocabulary, the longest first; a word that has none becomes [UNK]."""
        return [piece for word in _words(text) for piece in self._split(word)]

    def piece_ids(self, text: str) -> Ids:
        """Return the ids of the first 48 pieces, padded with -1."""
        found = [self.ids[piece] for piece in self.pieces(text)[:MAX_PIECES]]
        return np.array(found + [-1] * (MAX_PIECES - len(found)), np.int64)

    def known_share(self, text: str) -> float:
        """Return the share of words that are in the vocabulary as a whole; 0 for a text without words."""
        words = [word for word in _words(text) if word[0].isalpha()]
        return sum(word in self.ids for word in words) / max(len(words), 1)

    def _split(self, word: str) -> list[str]:
        pieces, start = [], 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(min(len(word), start + _MAX_PIECE_LENGTH), start, -1)
            end = next((end for end in ends if mark + word[start:end] in self.ids), None)
            if end is None:
                return ["[UNK]"]
            pieces.append(mark + word[start:end])
            start = end
        return pieces


def _words(text: str) -> list[str]:
    """Return the words and punctuation marks of a text in lower case and without accents."""
    plain = unicodedata.normalize("NFD", text.lower())
    return _WORD.findall("".join(letter for letter in plain if unicodedata.category(letter) != "Mn"))


@cache
def load_word_pieces(path: Path) -> WordPieceVocabulary:
    """Read the table of pieces: `pieces` as text lines, `vectors` quantised to int8, and one `scale` per column."""
    with np.load(path) as table:
        pieces = bytes(table["pieces"]).decode("utf-8").split("\n")
        vectors = table["vectors"].astype(np.float32) * table["scale"]
    return WordPieceVocabulary({piece: index for index, piece in enumerate(pieces)}, vectors)
