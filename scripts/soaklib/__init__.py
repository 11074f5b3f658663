"""A long run of a hub under readers, re-ingests and faults, each byte checked."""
