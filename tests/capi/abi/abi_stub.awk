# From the public headers to a C file that defines each of their functions, to do nothing: with debug types it has the whole
# ABI, and takes no LibTorch to compile.

BEGIN { print "#include <fsdp2/fsdp2.h>" }

# One line without comments at a time; a declaration is collected until its end.
{
  text = $0
  if (in_comment) {
    if (!sub(/^.*\*\//, "", text)) next
    in_comment = 0
  }
  gsub(/\/\*[^*]*(\*[^\/][^*]*)*\*\//, "", text)
  if (sub(/\/\*.*$/, "", text)) in_comment = 1
}

text ~ /^FSDP2_(CALL|API) / { in_declaration = 1 }
in_declaration {
  declaration = declaration text " "
  if (declaration !~ /;[ ]*$/) next
  sub(/;[ ]*$/, " { __builtin_trap(); }", declaration)
  print declaration
  declaration = ""
  in_declaration = 0
}
