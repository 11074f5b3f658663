"""What ``scripts/bench`` is made of.

``model`` figures and targets, ``rounds`` the interleaved measuring, ``lab`` processes and mounts
and their end, ``signals`` how a run is cut short, ``corpora`` and ``services`` what is measured
on, ``ingest_suite`` and ``mount_suite`` what is measured, ``mounts`` what is compared, ``targets``
what is to be reached, ``machine`` and ``report`` what is told. ``plot`` draws. ``worker`` and
``proxy`` run in processes of their own; ``peer`` does so in the environment that ``peers`` makes.

To add:

- another mount: a class in ``mounts``, named in its ``SUBJECTS``. One of ours with further options
  overrides ``options``; a service that it needs is entered into ``setting.stack`` in ``prepare``.
- another way to reach Chroma: a context manager in ``services.BACKENDS`` that yields what
  ``--chroma`` takes; for mounts alone, a subject that changes its target (``mounts.Delayed``).
- another command on the mounts: a ``Task`` in ``mount_suite.TASKS``.
- another thing to count: a ``Reading`` in a subject's ``counters``.
- something that is no mount (a bare client's bulk read): a ``Trial`` with a group of its own, or in
  the group that it is compared with.
- a target: an entry in ``targets.TARGETS``; its bound may be a multiple of another figure, a sum of
  several, a number, or both together.
"""
