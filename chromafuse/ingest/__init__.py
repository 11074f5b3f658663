"""From a docs tree on disk to pages in a collection."""
