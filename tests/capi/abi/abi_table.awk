# From the public headers to a C program that prints what their ABI consists of: sizes and offsets of structs, values of
# enumerators and of the numbers among macros.

BEGIN {
  print "#include <fsdp2/fsdp2.h>"
  print "#include <stdio.h>"
  print "int main(void) {"
}

# One line without comments at a time; what spans lines is collected until its end.
{
  text = $0
  if (in_comment) {
    if (!sub(/^.*\*\//, "", text)) next
    in_comment = 0
  }
  gsub(/\/\*[^*]*(\*[^\/][^*]*)*\*\//, "", text)
  if (sub(/\/\*.*$/, "", text)) in_comment = 1
}

text ~ /^#define FSDP2_[A-Z_]+ +[0-9]/ {
  split(text, words, /[ (]+/)
  print "  printf(\"" words[2] " %lld\\n\", (long long)" words[2] ");"
  next
}

text ~ /^typedef struct [a-z0-9_]+ .*}/ {  # on one line: a handle
  match(text, /struct [a-z0-9_]+/)
  type = substr(text, RSTART + 7, RLENGTH - 7)
  print "  printf(\"" type " %zu\\n\", sizeof(" type "));"
  next
}
text ~ /^typedef struct [a-z0-9_]+ \{/ {
  match(text, /struct [a-z0-9_]+/)
  type = substr(text, RSTART + 7, RLENGTH - 7)
  print "  printf(\"" type " %zu\\n\", sizeof(" type "));"
  in_struct = 1
  next
}
in_struct && text ~ /^}/ { in_struct = 0; next }
in_struct {
  declarations = declarations text
  if (declarations !~ /;[ ]*$/) next
  n = split(declarations, parts, ";")
  declarations = ""
  for (i = 1; i < n; ++i) {
    m = split(parts[i], names, ",")
    for (j = 1; j <= m; ++j) {
      name = names[j]
      sub(/\[.*/, "", name)
      sub(/ +$/, "", name)
      sub(/^.*[ *]/, "", name)
      if (name != "")
        print "  printf(\"" type "." name " %zu %zu\\n\", offsetof(" type ", " name "), sizeof(((" type " *)0)->" name "));"
    }
  }
  next
}

text ~ /^enum( [a-z0-9_]+)? \{/ { in_enum = 1; sub(/^enum[^{]*\{/, "", text) }
in_enum {
  ends = text ~ /}/
  sub(/}.*/, "", text)
  n = split(text, parts, ",")
  for (i = 1; i <= n; ++i) {
    if (match(parts[i], /FSDP2_[A-Z0-9_]+/)) {
      name = substr(parts[i], RSTART, RLENGTH)
      print "  printf(\"" name " %lld\\n\", (long long)" name ");"
    }
  }
  if (ends) in_enum = 0
}

END {
  print "  return 0;"
  print "}"
}
