"""Fails where docs/troubleshooting.md quotes a message that no source has: python3 troubleshooting_test.py PAGE SOURCES...
Also where its table of the log's categories is not that of the sources.

Each line of a block without a language is a message. Between its "…" it consists of words that some string of the sources must
have; strings that stand side by side are one, and what is put in for {} or between + is "…" to us.
"""

import re
import sys

LITERAL = r'"(?:[^"\\\n]|\\.)*"'
CATEGORY = re.compile(r'\blog\(\s*LogLevel::\w+,\s*"(\w+)"|\bProgressLog \w+\(\s*"(\w+)"')
STRINGS = re.compile(rf"{LITERAL}(?:\s*{LITERAL})*")


def strings_of(path):
    with open(path, encoding="utf-8") as source:
        text = source.read()
    for match in STRINGS.finditer(text):
        yield "".join(part[1:-1] for part in re.findall(LITERAL, match.group()))


def quoted_messages(path):
    with open(path, encoding="utf-8") as page:
        lines = page.read().splitlines()
    fence = None
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            fence = line[3:] if fence is None else None
        elif fence == "":
            yield number, line


def categories_of(path):
    with open(path, encoding="utf-8") as source:
        return {one or other for one, other in CATEGORY.findall(source.read())}


def documented_categories(path):
    with open(path, encoding="utf-8") as page:
        table = page.read().partition("| category |")[2].partition("\n\n")[0]
    return set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def main():
    page, sources = sys.argv[1], sys.argv[2:]
    strings = "\n".join(string for path in sources for string in strings_of(path))
    messages = list(quoted_messages(page))
    n_wrong = 0
    for number, message in messages:
        for words in message.split("…"):
            if len(words.strip(" :;,[]'")) > 2 and words.strip() not in strings:
                print(f"{page}:{number}: no message has '{words.strip()}'")
                n_wrong += 1
    logged = set().union(*(categories_of(path) for path in sources))
    for category in sorted(logged - documented_categories(page)):
        print(f"{page}: the table of categories is without '{category}'")
        n_wrong += 1
    for category in sorted(documented_categories(page) - logged):
        print(f"{page}: no source logs in the category '{category}'")
        n_wrong += 1
    if not messages:
        sys.exit(f"{page}: no messages found")
    print(f"{len(messages)} messages, {n_wrong} faults")
    sys.exit(n_wrong > 0)


main()
