# awk -f same_lines.awk EXPECTED FOUND: do two programs print the same lines? Numbers with a point may differ by 4e-5, since sums are
# taken in another order.
FNR == NR {
  expected[n = NR] = $0
  next
}
{
  same = split(expected[FNR], words, " ") == NF
  for (i = 1; i <= NF; ++i) {
    off = $i - words[i]
    same = same && ($i == words[i] || ($i ~ /[0-9]\.[0-9]/ && off < 4e-5 && off > -4e-5))
  }
  if (!same) {
    print "expected '" expected[FNR] "', found '" $0 "'"
    wrong = 1
  }
  found = FNR
}
END {
  if (found != n || n == 0) {
    print "expected " n + 0 " lines, found " found + 0
    wrong = 1
  }
  exit wrong
}
