"""Vendors behind ports: blocking, free of event loops, one module a vendor.

The only importers of chromadb (embedded) and httpx (a Chroma server).
"""
