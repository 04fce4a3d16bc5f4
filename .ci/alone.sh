#!/bin/bash
# Compiles each file of a part of the rooms by itself, to see that it includes what it needs: part N of 32, or the one whose
# turn it is by the number of commits. All of them: .ci/alone.sh all
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

parts=32
part=${1:-$(($(git rev-list --count HEAD 2>/dev/null || echo 0) % parts))}
rooms=$(./bazelw query 'kind("cc_library rule", //core/... + //client/... + //capi/... + //cli/...)' 2>/dev/null | sort)
if [[ $part != all ]]; then
  rooms=$(awk -v parts="$parts" -v part="$part" 'NR % parts == part' <<<"$rooms")
fi
# shellcheck disable=SC2086  # one word a room
./bazelw build --config=files --config=cuda --output_groups=compilation_outputs --keep_going $rooms
