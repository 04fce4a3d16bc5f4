#!/bin/bash
# threads_example.sh PROGRAM: the program that embeds ranks as threads has the losses of the reference run, however many, and
# ends with status 1 and a message on errors.
set -u
golden=tests/parity/golden
printf 'step %d loss %s\n' 0 6.206598 1 5.721163 2 5.662178 >"$TEST_TMPDIR/expected"
for ranks in 1 2 4; do
  "$1" $golden/models/tiny-llama $golden/tokens/tiny-llama.bin $ranks 3 >"$TEST_TMPDIR/$ranks" || exit 1
  awk -f tests/capi/examples/same_lines.awk "$TEST_TMPDIR/expected" "$TEST_TMPDIR/$ranks" || exit 1
done

# Often, since a crash would depend on what the other ranks are at.
head -c 2 $golden/tokens/tiny-llama.bin >"$TEST_TMPDIR/too_short"
for _ in 1 2 3 4 5; do
  for tokens in "$TEST_TMPDIR/too_short" "$TEST_TMPDIR/not_there"; do
    said=$("$1" $golden/models/tiny-llama "$tokens" 4 3 2>&1)
    status=$?
    if [ $status -ne 1 ] || [[ $said != *"threads: FSDP2_E_"* ]]; then
      echo "expected status 1 and a message, found $status: $said" >&2
      exit 1
    fi
  done
done
