// Resume trains up to a number of steps from where it was left, on any number of ranks, and saves the run:
//
//	fsdp2 run --nproc-per-node 2 -- resume MODEL_DIRECTORY TOKEN_FILE RUN_DIRECTORY 3
//	resume MODEL_DIRECTORY TOKEN_FILE RUN_DIRECTORY 5       goes on from there, on one rank
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"

	"fsdp2"
)

// must ends the program on an error; the other ranks see that it has ended.
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: resume MODEL_DIRECTORY TOKEN_FILE RUN_DIRECTORY STEPS")
	}
	directory, tokenFile, run, last := os.Args[1], os.Args[2], os.Args[3], must(strconv.Atoi(os.Args[4]))

	mesh := must(fsdp2.NewMesh(context.Background(), nil))
	defer mesh.Close()
	model := must(fsdp2.ModuleFromPretrained(directory, nil))
	defer model.Close()
	shard := must(fsdp2.NewShard(model, mesh, nil))
	defer shard.Close()
	adamw := fsdp2.DefaultAdamWOptions()
	adamw.LR, adamw.Beta2, adamw.WeightDecay = 3e-3, 0.95, 0.1
	optimizer := must(fsdp2.NewAdamW(shard, &adamw))
	defer optimizer.Close()
	loader := must(fsdp2.OpenLoader(mesh, tokenFile,
		fsdp2.LoaderOptions{SequenceLength: 32, GlobalBatch: 12, VocabSize: must(model.Info()).VocabSize}))
	defer loader.Close()
	step := must(fsdp2.NewStep(shard, optimizer, nil))
	defer step.Close()
	state := fsdp2.Checkpoint{Shard: shard, Optimizer: optimizer, Step: step, Loader: loader}

	// The newest checkpoint that is whole; none is in the directory of a run that begins.
	path, err := fsdp2.FindCheckpoint(run)
	if err == nil {
		err = state.Load(path, nil)
	} else if errors.Is(err, fsdp2.ErrNotFound) {
		err = nil
	}
	if err != nil {
		log.Fatal(err)
	}
	for i := must(step.Position()); i < last; i++ {
		tokens, labels, err := loader.Next()
		if err != nil {
			log.Fatal(err)
		}
		result := must(step.Run(tokens, labels))
		tokens.Close()
		labels.Close()
		if must(mesh.Info()).Rank == 0 {
			fmt.Printf("step %d loss %.6f\n", result.Step, result.Loss)
		}
	}
	if err := state.Save(fmt.Sprintf("%s/step-%08d", run, last), nil); err != nil {
		log.Fatal(err)
	}
}
