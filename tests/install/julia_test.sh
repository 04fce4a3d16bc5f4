#!/bin/bash
# The program of Julia's README learns, and another trains, with the library of the prefix; also where the prefix has been moved to. The
# README's other lines of Julia run.
source tests/install/installed.sh
need julia

export JULIA_DEPOT_PATH=$work/depot JULIA_PROJECT=$root/bindings/julia/FSDP2
quick=(--startup-file=no -O0 --compile=min) # compiling would take longer than interpreting
code_block bindings/julia/README.md julia 1 >"$work/first.jl"

learns_and_trains() {
  export FSDP2_LIBRARY=$prefix/lib/libfsdp2.so
  learns_on_two_ranks julia "${quick[@]}" "$work/first.jl" examples/configs/byte-llama.json examples/data/opticks.txt
  train_on_two_ranks julia "${quick[@]}" examples/julia/train.jl
}

in_two_places learns_and_trains

# What those lines take for granted.
mkdir "$work/more"
cp -RL tests/parity/golden/models/tiny-llama "$work/more/MODEL_DIRECTORY"
printf 'model: MODEL_DIRECTORY\nlr: 4.0e-3\n' >"$work/more/run.yaml"
{
  cat <<'END'
using FSDP2

mesh = Mesh()
trained = Shard(from_pretrained("MODEL_DIRECTORY"), mesh)
step = Step(trained, adamw(trained))
tokens, labels = next!(Loader(mesh, ARGS[1]; sequence_length = 32, global_batch = 4, vocab_size = 384))
prompts = [[1, 2, 3], [4]]
END
  code_block bindings/julia/README.md julia 2
} >"$work/more/more.jl"
(
  cd "$work/more"
  julia "${quick[@]}" more.jl "$root/tests/parity/golden/tokens/tiny-llama.bin" >table
  [[ -s table && -s trace.json && -s trained/model.safetensors ]]
)

# In an environment of the program's own. Pkg is content with a registry that knows nothing, and there is no network for the other.
copy_to_work bindings/julia
mkdir -p "$JULIA_DEPOT_PATH/registries/None"
cat >"$JULIA_DEPOT_PATH/registries/None/Registry.toml" <<'END'
name = "None"
uuid = "7ea1a1e4-6c0d-4c3e-9d5b-3a8f4d1c2b10"
repo = "https://example.com/none"
[packages]
END
JULIA_PROJECT=$work/environment julia "${quick[@]}" -e 'using Pkg; Pkg.develop(PackageSpec(path = ARGS[1]))' \
  "$work/bindings/julia/FSDP2"
JULIA_PROJECT=$work/environment learns_on_two_ranks \
  julia "${quick[@]}" "$work/first.jl" examples/configs/byte-llama.json examples/data/opticks.txt

# As an artifact, which a depot without it gets from an archive.
unset FSDP2_LIBRARY
export JULIA_PROJECT=$work/bindings/julia/FSDP2 JULIA_PKG_SERVER=
julia --startup-file=no "$work/bindings/julia/artifact.jl" "$prefix" "$work/libfsdp2.tar.gz" "file://$work/libfsdp2.tar.gz"
learns_as_artifact() {
  learns_on_two_ranks julia "${quick[@]}" "$work/first.jl" examples/configs/byte-llama.json examples/data/opticks.txt
}
learns_as_artifact
JULIA_DEPOT_PATH=$work/other_depot learns_as_artifact
