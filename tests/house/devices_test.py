"""Fails where core leaves a tensor's device to LibTorch's default, or lets the host read a device: python3 devices_test.py
ALLOWED SOURCES...

A call that makes a tensor must name its device: by device(...), by the options() of another tensor, or by options that were
made of these in the same file. In the rooms that a training step runs through, each call that may make the host wait for a
device must be in ALLOWED, with its reason; so must every line of ALLOWED still be needed.
"""

import re
import sys

FACTORIES = [
    "arange",
    "blackman_window",
    "empty",
    "empty_permuted",
    "empty_strided",
    "eye",
    "from_blob",
    "full",
    "hann_window",
    "kaiser_window",
    "linspace",
    "logspace",
    "normal",
    "ones",
    "rand",
    "randint",
    "randn",
    "randperm",
    "scalar_tensor",
    "tensor",
    "zeros",
]
MAKES = re.compile(rf"\b(?:at|torch)::(?:{'|'.join(FACTORIES)})\(")
NAMES_DEVICE = re.compile(r"\bdevice\(|\boptions\(\)|\bat::kCPU\b")
OPTIONS = re.compile(r"\b(\w*options|on_host|on_device)\b(?!\()")

# What reads values on the host, or needs them there to know the shape of its result.
READS = {
    "item": re.compile(r"\.item(?:<\w+>)?\("),
    "to host": re.compile(r"\.cpu\(\)|\.to\(at::kCPU\b"),
    "shape": re.compile(
        r"\.(?:nonzero|nonzero_numpy|masked_select|unique_consecutive|bincount|repeat_interleave)\("
        r"|\bat::(?:nonzero|masked_select|_unique2?|bincount)\("
    ),
    "comparison": re.compile(
        r"\.(?:equal|is_nonzero|allclose)\(|\bat::(?:equal|is_nonzero|allclose)\("
    ),
}
STEP_ROOMS = (
    "core/exported",
    "core/exported/fusions",
    "core/exported/operators",
    "core/exported/script",
    "core/fsdp",
    "core/fsdp/group",
    "core/models",
    "core/models/config",
    "core/nn",
    "core/nn/experts",
    "core/nn/kernels",
    "core/nn/layers",
    "core/nn/random",
    "core/nn/recompute",
    "core/operators",
    "core/train/optim",
    "core/train/infer",
    "core/train/step",
)


def without_comments(text):
    """The text with comments and strings blanked, so that lines keep their numbers."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"', re.DOTALL)
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def arguments_at(text, start):
    """What is between the parenthesis that ends at `start` and its partner."""
    depth = 1
    for end in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            return text[start:end]
    return text[start:]


def names_device(text, arguments):
    if NAMES_DEVICE.search(arguments):
        return True
    for name in OPTIONS.findall(arguments):
        made = re.findall(rf"\b(?:TensorOptions|auto) {re.escape(name)} =([^;]*);", text)
        if made and all(NAMES_DEVICE.search(value) for value in made):
            return True
    return False


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def unplaced(path, text):
    for call in MAKES.finditer(text):
        arguments = arguments_at(text, call.end())
        if not names_device(text, arguments):
            yield f"{path}:{line_of(text, call.start())}: {call.group()}...) names no device"


def reads_in(text):
    """The kinds of reads in a file, each with the lines that it is on."""
    found = {}
    for kind, pattern in READS.items():
        lines = [line_of(text, call.start()) for call in pattern.finditer(text)]
        if lines:
            found[kind] = lines
    return found


def read_allowed(path):
    allowed = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                place, kinds, reason = (part.strip() for part in line.split("|", 2))
                assert reason, f"{place}: no reason"
                for kind in kinds.split(","):
                    allowed[place, kind.strip()] = reason
    return allowed


def main(allowed_path, sources):
    allowed = read_allowed(allowed_path)
    used = set()
    faults = []
    for path in sources:
        with open(path, encoding="utf-8") as file:
            text = without_comments(file.read())
        faults += unplaced(path, text)
        if path.rsplit("/", 1)[0] not in STEP_ROOMS:
            continue
        for kind, lines in reads_in(text).items():
            if (path, kind) in allowed:
                used.add((path, kind))
            else:
                faults.append(f"{path}:{lines[0]}: the host may wait for a device ({kind})")
    faults += [
        f"{path}: '{kind}' is allowed, but is not there" for path, kind in set(allowed) - used
    ]
    for fault in sorted(faults):
        print(fault)
    print(f"{len(sources)} files, {len(allowed)} reads allowed, {len(faults)} faults")
    return 1 if faults or not sources else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
