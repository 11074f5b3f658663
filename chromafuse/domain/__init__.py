"""Pure facts and rules: no I/O, no clock, no threads, no logging.

Everything here is immutable data or a function of its arguments, so that it can be tested by
property and used from any thread.
"""
