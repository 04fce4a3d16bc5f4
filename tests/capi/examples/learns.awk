# awk -v steps=STEPS -v by=LESS -f learns.awk LINES: are they the losses of so many steps, the last at least so much below the first?
NF != 4 || $1 != "step" || $2 != NR - 1 || $3 != "loss" {
  print "expected 'step " NR - 1 " loss ...', found '" $0 "'"
  wrong = 1
}
NR == 1 { first = $4 }
{ last = $4 }
END {
  if (NR != steps || !(last < first - by)) {
    print "expected " steps " steps and " by " less, found " NR " from " first " to " last
    wrong = 1
  }
  exit wrong
}
