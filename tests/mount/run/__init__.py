"""Tests of ``chromafuse run``."""
