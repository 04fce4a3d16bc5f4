"""links.py FOLDER|FILE...: follows the links of Markdown files, or of all below a folder. Prints those that lead nowhere, and ends
with 1 if there are any, or no links at all.
"""

import pathlib
import re
import sys

CODE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(text):
    """What a link can name in a page: its headings, as GitHub spells them, and the places that HTML names."""
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#+ (.*)$", CODE.sub("", text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = 0
        while (anchor if count == 0 else f"{anchor}-{count}") in found:
            count += 1
        found.add(anchor if count == 0 else f"{anchor}-{count}")
    return found


def leads_nowhere(page, link):
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    if not target.exists():
        return True
    return anchor != "" and target.suffix == ".md" and anchor not in anchors(target.read_text())


def pages_of(paths):
    for path in paths:
        yield from sorted(path.rglob("*.md")) if path.is_dir() else [path]


def main(paths):
    count, broken = 0, []
    for page in pages_of(paths):
        for link in LINK.findall(CODE.sub("", page.read_text())):
            if re.match(r"[a-z]+:", link):
                continue
            count += 1
            if leads_nowhere(page, link):
                broken.append(f"{page}: {link} leads nowhere")
    print("\n".join([*broken, f"{count} links"]))
    return 1 if broken or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main([pathlib.Path(path) for path in sys.argv[1:]]))
