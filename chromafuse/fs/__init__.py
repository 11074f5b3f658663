"""The file system: the only importer of pyfuse3."""
