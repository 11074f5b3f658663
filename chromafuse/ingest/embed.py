"""Real vectors, made without a network: wordllama's static embeddings (extra ``embed``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from chromafuse.domain.errors import ConfigError


class WordLlamaEmbedder:
    """256 numbers a text from the table that the wordllama package carries.

    Raises ``ConfigError`` if the package is not installed.
    """

    name = "wordllama"
    dimension = 256

    def __init__(self) -> None:
        try:
            import wordllama
        except ImportError:
            raise ConfigError(
                "--embed wordllama needs the package wordllama",
                remedy="pip install 'chromafuse[embed]'",
            ) from None
        # Told where its own files are, it does not look for them on a hub.
        package = Path(wordllama.__file__).parent
        self._model = wordllama.WordLlama.load(
            dim=self.dimension, cache_dir=package, disable_download=True
        )

    def vectors(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        """Return one vector for each text; an empty one has that of a space."""
        if not texts:
            return []
        rows = self._model.embed([text or " " for text in texts]).tolist()
        return [tuple(float(number) for number in row) for row in rows]
