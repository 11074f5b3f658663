"""Vendors behind ports: blocking, free of event loops, one module a vendor.

The only importers of chromadb (embedded), httpx (a Chroma server) and boto3.
"""
