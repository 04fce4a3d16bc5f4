"""Counts test cases in Bazel's build event files: python3 count_results.py LINES EVENTS.json...

LINES is a file in which each line that starts with `passed:` or `failed:` counts as a case. Prints each failed target, each
skipped test and each target that passed at a second attempt only, then `N passed, N failed` as the last line; exits 1 if
anything failed or nothing ran. A target counts in each of the files that it is in. One that writes no report of its own counts
as one case. A target skips what it cannot run by printing a line that starts with `SKIPPED:` and passing.
"""

import json
import os
import sys
import urllib.parse
from xml.etree import ElementTree


def read(uri):
    try:
        with open(
            urllib.parse.unquote(urllib.parse.urlparse(uri).path),
            encoding="utf-8",
            errors="replace",
        ) as file:
            return file.read()
    except OSError:
        return ""


def cases(report):
    """(passed, failed, skipped) in a JUnit report; None if it is unreadable or empty."""
    try:
        found = list(ElementTree.fromstring(report).iter("testcase"))
    except ElementTree.ParseError:
        return None
    failed = sum(
        1 for case in found if case.find("failure") is not None or case.find("error") is not None
    )
    skipped = sum(
        1
        for case in found
        if case.find("skipped") is not None
        or case.get("status") == "notrun"
        or case.get("result") == "skipped"
    )
    return (len(found) - failed - skipped, failed, skipped) if found else None


def read_events(path):
    """{(target, run, shard, file): the last attempt and its result}, and what could not be built or run."""
    results = {}
    broken = []
    name = os.path.basename(path)
    with open(path, encoding="utf-8") as events:
        for line in events:
            event = json.loads(line)
            if "testResult" in event:
                identity = event["id"]["testResult"]
                key = (identity["label"], identity.get("run", 1), identity.get("shard", 1), name)
                attempt = identity.get("attempt", 1)
                if key not in results or attempt >= results[key][0]:
                    results[key] = (attempt, event["testResult"])
            elif "testSummary" in event and event["testSummary"].get("overallStatus") in (
                "NO_STATUS",
                "FAILED_TO_BUILD",
            ):
                broken.append(event["id"]["testSummary"]["label"] + " was not run")
            elif "aborted" in event and "targetCompleted" in event["id"]:
                # What only another configuration can build is left out of this one.
                if event["aborted"].get("reason") != "SKIPPED":
                    broken.append(event["id"]["targetCompleted"]["label"] + " was not built")
            elif "completed" in event and not event["completed"].get("success"):
                broken.append(event["id"]["targetCompleted"]["label"] + " failed to build")
    return results, [f"{what} ({name})" for what in broken]


def main(lines_path, *paths):
    results = {}
    broken = []
    for path in paths:
        found, lacking = read_events(path)
        results.update(found)
        broken += lacking

    passed = failed = 0
    for (label, _, _, name), (attempt, result) in sorted(results.items()):
        outputs = {
            output["name"]: output.get("uri", "") for output in result.get("testActionOutput", [])
        }
        succeeded = result.get("status") == "PASSED"
        counted = cases(read(outputs.get("test.xml", ""))) or (
            int(succeeded),
            int(not succeeded),
            0,
        )
        notes = [
            line[len("SKIPPED:") :].strip()
            for line in read(outputs.get("test.log", "")).splitlines()
            if line.startswith("SKIPPED:")
        ]
        for note in notes:
            print(f"skipped: {label}: {note}")
        if notes and counted == (1, 0, 0):
            continue  # nothing of it ran
        if not succeeded and counted[1] == 0:
            counted = (
                counted[0],
                1,
                counted[2],
            )  # it died, ran out of time, or failed outside its cases
        if counted[2]:
            print(f"skipped: {label}: {counted[2]} cases")
        if not succeeded:
            print(f"failed: {label} ({name}: {result.get('status')})")
        elif attempt > 1:
            print(f"flaky: {label} passed at attempt {attempt}; what failed before is above")
        passed += counted[0]
        failed += counted[1]

    for line in read(lines_path).splitlines():
        passed += line.startswith("passed:")
        if line.startswith("failed:"):
            broken.append(line[len("failed:") :].strip())
        elif line.startswith("SKIPPED:"):
            print(f"skipped: {line[len('SKIPPED:') :].strip()}")

    broken = sorted(set(broken))
    for line in broken:
        print(f"failed: {line}")
    failed += len(broken)
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
