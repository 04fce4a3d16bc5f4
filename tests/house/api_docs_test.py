"""The API reference says all that the headers say, and its links lead somewhere.

    api_docs_test.py INCLUDE_DIRECTORY DOCS_DIRECTORY

Reads both as text, without what made one of the other: each declared name is in the page of its
header, each comment is there word for word, and each link has a file and a heading.
"""

import pathlib
import re
import sys

COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
NAME = re.compile(r"\b(?:fsdp2|FSDP2)_\w+\b")
LINK = re.compile(r"(?<!\\)\]\(([^)]+)\)")
FAMILY = re.compile(r"\[`(FSDP2_\w*)\.\.\.`\]\(([^)]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
ITEM = re.compile(r"^\s*\* {1,2}\d+\. ", re.MULTILINE)
NO_DOCUMENTATION = re.compile(r"\(opt\)|clang-format o\w+|FSDP2_\w+_H_")
NOT_TOLD = re.compile(r"FSDP2_(API|CALL|BEGIN_DECLS|END_DECLS|\w+_H_)")


def words(text: str) -> str:
    """With the star of "*needed", but not those of bold text."""
    return " " + " ".join(re.findall(r"(?:(?<!\*)\*)?\w+", text.lower().replace("\\*", "*"))) + " "


def paragraphs_of(header: str) -> list[str]:
    """What the comments say, paragraph by paragraph, and item by item of a numbered list."""
    found = []
    for comment in COMMENT.findall(header):
        if NO_DOCUMENTATION.fullmatch(comment.strip()):
            continue
        for item in ITEM.split(comment):
            text = re.sub(r"\n\s*\*(?: |$)", "\n", item.strip(), flags=re.MULTILINE)
            text = re.sub(r"^\[c\] ", "Collective. ", text)
            found += [paragraph for paragraph in text.split("\n\n") if paragraph]
    return found


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-")


def main() -> int:
    include, docs = map(pathlib.Path, sys.argv[1:])
    wrong = []
    anchors = {}
    for page in docs.rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        anchors[page.resolve()] = {anchor(heading) for heading in HEADING.findall(text)}

    n_paragraphs = n_names = n_links = 0
    for header in sorted(include.glob("*.h")):
        page = docs / "api" / ("README.md" if header.name == "fsdp2.h" else header.stem + ".md")
        text, source = page.read_text(), header.read_text()
        told_names = set(NAME.findall(text))
        told = words(LINK.sub("]", text))
        for paragraph in paragraphs_of(source):
            n_paragraphs += 1
            if words(paragraph) not in told:
                wrong.append(f"{page}: lacks or changes what {header.name} says: {paragraph}")
        for name in sorted(set(NAME.findall(COMMENT.sub("", source)))):
            n_names += 1
            if not NOT_TOLD.fullmatch(name) and name not in told_names:
                wrong.append(f"{page}: lacks {name}")
        for link in LINK.findall(text):
            n_links += 1
            file, _, place = link.partition("#")
            target = (page.parent / file if file else page).resolve()
            if not target.exists():
                wrong.append(f"{page}: no file {file}")
            elif place and place not in anchors.get(target, ()):
                wrong.append(f"{page}: no heading {link}")
        for family, link in FAMILY.findall(text):
            if link.partition("#")[2].split("-")[0] != family.lower():
                wrong.append(f"{page}: {family}... leads to {link}")
    print("\n".join(wrong))
    print(f"{n_paragraphs} paragraphs, {n_names} names, {n_links} links")
    return 1 if wrong or not n_paragraphs or not n_names or not n_links else 0


sys.exit(main())
