#!/bin/bash
# coverage.txt lists what the library exports, and says of each function what the safe layers really have, options included;
# names.md names what is there. Every function has a test or an example, which tests run, that names what a language offers for it.
set -euo pipefail

failed=0
wrong() {
  echo "$*"
  failed=1
}

# Is the function in what the generators wrote? Java's raw layer is everything in the headers but what fsdp2.i leaves out.
bound() {  # LANGUAGE FUNCTION
  case $1 in
    rust) grep -q "pub fn $2\b" bindings/rust/fsdp2-sys/src/bindings.rs ;;
    go) grep -qE "C\.($2|fsdp2_go_${2#fsdp2_})\(" bindings/go/internal/capi/capi.go ;;
    java) ! grep -q "^%ignore $2;" bindings/java/src/main/swig/fsdp2.i ;;
    julia) grep -q "@ccall libfsdp2.$2(" bindings/julia/FSDP2/src/libfsdp2.jl ;;
  esac
}

# The files that a safe layer is made of.
safe_sources() {  # LANGUAGE
  case $1 in
    rust) find -L bindings/rust/fsdp2/src -name '*.rs' ;;
    go) find -L bindings/go -maxdepth 1 -name '*.go' ! -name '*_test.go' ;;
    java) find -L bindings/java/src/main/java/io/fsdp2 -maxdepth 1 -name '*.java' ;;
    julia) find -L bindings/julia/FSDP2/src -name '*.jl' ! -name libfsdp2.jl ;;
  esac
}

# The files that use it.
users() {  # LANGUAGE
  case $1 in
    rust) find -L bindings/rust/fsdp2/tests examples/rust -name '*.rs' ;;
    go) find -L bindings/go examples/go -name '*_test.go' -o -name main.go ;;
    java) find -L bindings/java/src/test examples/java -name '*.java' ;;
    julia) find -L bindings/julia/FSDP2/test examples/julia -name '*.jl' ;;
  esac
}

# What is a word (or ==) somewhere in files, as "PLACE word".
declare -A words
read_words() {  # PLACE; the files' names are its input
  local word
  while read -r word; do words["$1 $word"]=1; done < <(xargs -r cat | grep -oE '\w+|==' | sort -u)
}

# "Mesh (Drop), Mesh::destroy" wants Mesh and destroy.
check() {  # FUNCTION LANGUAGE CELL
  local names name cell=$3 used=
  case $3 in
    "" | "raw: ") wrong "$1: coverage.txt does not say what $2 offers" ;;
    raw:*) bound "$2" "$1" || wrong "$1: coverage.txt says '$3' for $2, whose raw layer lacks it" ;;
    inside\ ?*) ;;
    *)
      while [[ $cell =~ ^(.*[^ ])\ *\([^\)]*\)(.*)$ ]]; do cell=${BASH_REMATCH[1]}${BASH_REMATCH[2]}; done
      IFS=, read -ra names <<<"$cell"
      for name in "${names[@]}"; do
        name=${name##*[ .:]}
        [[ ${words["$2 ${name%!}"]:-} ]] || wrong "$1: $2 has no $name, which coverage.txt names"
        used+=${words["users of $2 ${name%!}"]:-}
      done
      [[ $used ]] || wrong "$1: no test or example of $2 names $cell"
      ;;
  esac
}

for language in rust go java julia; do
  read_words $language < <(safe_sources $language)
  read_words "users of $language" < <(users $language)
done
while IFS=$'\t' read -r function rust go java julia; do
  check "$function" rust "$rust"
  check "$function" go "$go"
  check "$function" java "$java"
  check "$function" julia "$julia"
done < <(grep -v '^#' bindings/coverage.txt)

exported=$(nm --dynamic --defined-only libfsdp2.so | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort)
listed=$(grep -v '^#' bindings/coverage.txt | cut -f 1 | sort)
diff <(echo "$listed") <(echo "$exported") || wrong "coverage.txt (<) and the functions that libfsdp2.so exports (>) differ"

# "fsdp2_mesh_options timeout_ms MeshOptions TimeoutMs" for each option, as Julia's raw layer has them from the headers. Numbers of
# elements and the like are no options.
options() {
  awk 'function camel(text, parts, n, i, result) {
         n = split(text, parts, "_")
         for (i = 1; i <= n; ++i) result = result toupper(substr(parts[i], 1, 1)) substr(parts[i], 2)
         return result
       }
       /struct fsdp2_[a-z_]*_options$/ { name = $NF }
       /^end/ { name = "" }
       name && /::/ && $1 !~ /^(struct_size|reserved|n_.*|.*_user_data)::/ {
         sub(/::.*/, "", $1)
         print name, $1, camel(substr(name, 7)), camel($1)
       }' bindings/julia/FSDP2/src/libfsdp2.jl
}

# Each option is named in the files of every safe layer that use its struct.
while read -r struct option camel_struct camel_option; do
  for language in rust go java julia; do
    use=$struct name=$option
    case $language in
      go) use=capi.$camel_struct name=$camel_option ;;
      java) use="new $struct" name=${camel_option,} ;;
    esac
    users=$language.$struct
    if [[ ! ${words[$users]:-} ]]; then
      words[$users]=1
      read_words "$users" < <(safe_sources $language | { xargs grep -lF -- "$use" || true; })
    fi
    [[ ${words["$users $name"]:-} ]] || wrong "$struct.$option: $language has no $name where it uses $use"
  done
done < <(options)

# names.md speaks of what is there: whole names of functions, structs and constants.
while read -r name; do
  grep -qw -- "$name" include/fsdp2/*.h || wrong "names.md: $name is not in the headers"
done < <(grep -oE '\b(fsdp2|FSDP2)_[A-Za-z0-9_]+' bindings/names.md | grep -v '^fsdp2_sys' | sort -u)
exit $failed
