"""The daemon: ``core`` runs it in the ``role`` it is given; light to import as a package."""
