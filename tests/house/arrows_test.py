"""Fails on an include against the arrows: python3 arrows_test.py ARROWS SOURCES...

Also on arrows that lead back to where they came from, on one that no include needs, and on a room that ARROWS lacks.
"""

import re
import sys

INCLUDE = re.compile(
    r'^#include "((?:core|client|capi|cli|include)/[^"]+)"|^#include [<"](fsdp2/[^>"]+)[>"]',
    re.MULTILINE,
)


def read_arrows(path):
    arrows = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                room, _, targets = line.partition(":")
                arrows[room.strip()] = targets.split()
    return arrows


def room_of(path):
    folder = path.rsplit("/", 1)[0]
    top = folder.split("/", 1)[0]
    return top if top in ("capi", "cli") else folder


def find_loop(arrows):
    """A list of rooms that leads back to its first; empty if there is none."""
    done = set()

    def follow(room, way):
        if room in way:
            return way[way.index(room) :] + [room]
        if room in done:
            return []
        done.add(room)
        for target in arrows.get(room, ()):
            loop = follow(target, way + [room])
            if loop:
                return loop
        return []

    for room in arrows:
        loop = follow(room, [])
        if loop:
            return loop
    return []


def main(arrows_path, sources):
    arrows = read_arrows(arrows_path)
    used = set()
    faults = []
    for source in sources:
        room = room_of(source)
        if room not in arrows:
            faults.append(f"{source}: its room {room} has no line")
            continue
        with open(source, encoding="utf-8") as file:
            text = file.read()
        for ours, public in INCLUDE.findall(text):
            target = room_of(ours or "include/" + public)
            if target == room:
                continue
            used.add((room, target))
            if target not in arrows[room]:
                faults.append(
                    f"{source}: includes {ours or public}, but {room} may not include {target}"
                )
    faults += [
        f"{room}: {target} is allowed, but nothing needs it"
        for room, targets in arrows.items()
        for target in targets
        if (room, target) not in used
    ]
    loop = find_loop(arrows)
    if loop:
        faults.append("in a circle: " + " > ".join(loop))
    for fault in sorted(set(faults)):
        print(fault)
    print(f"{len(sources)} files, {len(arrows)} rooms, {len(faults)} against {arrows_path}")
    return 1 if faults or not sources else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
