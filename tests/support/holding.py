"""A program that holds a directory of a mount for as long as a page of it is not read."""

HOLDING = """
import ctypes, mmap, os, sys
page, directory = (os.open(path, os.O_RDONLY) for path in sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
place = libc.mmap(
    None, ctypes.c_size_t(4096), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, page,
    ctypes.c_long(0),
)
print("listing", flush=True)
libc.getdents64(directory, ctypes.c_void_p(place), ctypes.c_size_t(4096))
"""
"""Lists a directory into memory that is a page of the mount: the kernel locks the directory until
the page has been read."""
