# awk -f same_lines.awk EXPECTED FOUND: do two programs print the same lines? Numbers with a point may differ by 4e-5, since sums are
# taken in another order. No number is the same as one that is not finite.
function is_same(one, other) {
  if (one == other) return one !~ /^[-+]?(nan|inf)$/
  return one ~ NUMBER && other ~ NUMBER && one - other < 4e-5 && other - one < 4e-5
}
BEGIN { NUMBER = "^-?[0-9]+[.][0-9]+$" }
FNR == NR {
  expected[n = NR] = $0
  next
}
{
  same = split(expected[FNR], words, " ") == NF
  for (i = 1; i <= NF; ++i) same = same && is_same($i, words[i])
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
