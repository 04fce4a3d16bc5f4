"""Copies an ELF file and cuts the beginning off its run path: runpath.py FROM TO RUNPATH.

Bazel links programs with the folders of its output tree first in their run paths. RUNPATH is the end of FROM's run path and all
that TO keeps of it. (CMake also rewrites run paths in place when it installs.)
"""

import struct
import sys

PT_LOAD, PT_DYNAMIC = 1, 2
DT_STRTAB, DT_RPATH, DT_RUNPATH = 5, 15, 29


def segments(data):
    """The type, offset in the file, address and size of each segment."""
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for index in range(count):
        kind, _, offset, address, _, n_bytes = struct.unpack_from(
            "<IIQQQQ", data, table + index * size
        )
        yield kind, offset, address, n_bytes


def dynamic_entries(data):
    """The offset in the file, tag and value of each entry of the dynamic section."""
    for kind, offset, _, n_bytes in segments(data):
        if kind == PT_DYNAMIC:
            for entry in range(offset, offset + n_bytes, 16):
                yield (entry, *struct.unpack_from("<QQ", data, entry))


def file_offset(data, address):
    for kind, offset, begin, n_bytes in segments(data):
        if kind == PT_LOAD and begin <= address < begin + n_bytes:
            return offset + address - begin
    raise SystemExit(f"runpath.py: no segment holds address {address:#x}")


def keep_end(data, wanted):
    entries = list(dynamic_entries(data))
    strings = file_offset(data, next(value for _, tag, value in entries if tag == DT_STRTAB))
    paths = [(entry, value) for entry, tag, value in entries if tag in (DT_RPATH, DT_RUNPATH)]
    if len(paths) != 1:
        raise SystemExit(f"runpath.py: expected one run path, found {len(paths)}")
    entry, value = paths[0]
    begin = strings + value
    path = bytes(data[begin : data.index(0, begin)])
    cut = len(path) - len(wanted)
    if not (b":" + path).endswith(b":" + wanted):
        raise SystemExit(
            f"runpath.py: expected a run path that ends with {wanted.decode()}, found {path.decode()}"
        )
    # Strings share their ends at most, so nothing else uses what is cut off.
    data[begin : begin + cut] = bytes(cut)
    struct.pack_into("<Q", data, entry + 8, value + cut)


def main(source, target, wanted):
    with open(source, "rb") as file:
        data = bytearray(file.read())
    if data[:6] != b"\x7fELF\x02\x01":
        raise SystemExit(f"runpath.py: {source} is no little-endian 64-bit ELF file")
    keep_end(data, wanted.encode())
    with open(target, "wb") as file:
        file.write(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
