#!/bin/bash
# coverage.txt lists what the library exports, and says of each function what the safe layers really have, options included;
# names.md names what is there.
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

# "Mesh (Drop), Mesh::destroy" wants Mesh and destroy.
check() {  # FUNCTION LANGUAGE CELL
  local names name
  case $3 in
    "" | "raw: ") wrong "$1: coverage.txt does not say what $2 offers" ;;
    raw:*) bound "$2" "$1" || wrong "$1: coverage.txt says '$3' for $2, whose raw layer lacks it" ;;
    inside\ ?*) ;;
    *)
      IFS=, read -ra names <<<"$(sed 's/([^)]*)//g' <<<"$3")"
      for name in "${names[@]}"; do
        name=$(sed -E 's/ *$//; s/.*[ .:]//; s/!$//' <<<"$name")
        grep -qw -- "$name" "$TEST_TMPDIR/$2" || wrong "$1: $2 has no $name, which coverage.txt names"
      done
      ;;
  esac
}

for language in rust go java julia; do safe_sources $language | xargs cat >"$TEST_TMPDIR/$language"; done
while IFS=$'\t' read -r function rust go java julia; do
  check "$function" rust "$rust"
  check "$function" go "$go"
  check "$function" java "$java"
  check "$function" julia "$julia"
done < <(grep -v '^#' bindings/coverage.txt)

exported=$(nm --dynamic --defined-only libfsdp2.so | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort)
listed=$(grep -v '^#' bindings/coverage.txt | cut -f 1 | sort)
diff <(echo "$listed") <(echo "$exported") || wrong "coverage.txt (<) and the functions that libfsdp2.so exports (>) differ"

# "fsdp2_mesh_options timeout_ms" for each option, as Julia's raw layer has them from the headers. Numbers of elements and the like are
# no options.
options() {
  awk '/struct fsdp2_[a-z_]*_options$/ { name = $NF }
       /^end/ { name = "" }
       name && /::/ && $1 !~ /^(struct_size|reserved|n_.*|.*_user_data)::/ { sub(/::.*/, "", $1); print name, $1 }' \
    bindings/julia/FSDP2/src/libfsdp2.jl
}

camel() { sed -E 's/_(.)/\u\1/g' <<<"$1"; }

# Each option is named in the files of every safe layer that use its struct.
while read -r struct option; do
  for language in rust go java julia; do
    use=$struct name=$option
    case $language in
      go) use=capi.$(camel "${struct#fsdp2}") name=$(camel "_$option") ;;
      java) use="new $struct" name=$(camel "$option") ;;
    esac
    users=$TEST_TMPDIR/$language.$struct
    [[ -f $users ]] || safe_sources $language | { xargs grep -lF -- "$use" || true; } | xargs -r cat >"$users"
    grep -qw -- "$name" "$users" || wrong "$struct.$option: $language has no $name where it uses $use"
  done
done < <(options)

# names.md speaks of what is there: whole names of functions, structs and constants.
while read -r name; do
  grep -qw -- "$name" include/fsdp2/*.h || wrong "names.md: $name is not in the headers"
done < <(grep -oE '\b(fsdp2|FSDP2)_[A-Za-z0-9_]+' bindings/names.md | grep -v '^fsdp2_sys' | sort -u)
exit $failed
