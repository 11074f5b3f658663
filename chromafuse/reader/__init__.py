"""The reader: page bytes out of memory, Redis or Chroma, see ``core``; and those of objects."""

from chromafuse.reader.blocks import BlockReader, BlockReading
from chromafuse.reader.core import Counters, Reader, Reading

__all__ = ["BlockReader", "BlockReading", "Counters", "Reader", "Reading"]
