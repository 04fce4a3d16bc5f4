// Exported trains a program that PyTorch's torch.export has written, such as a model of examples/python/export_model.py, on tokens and
// labels of [4, 7]:
//
//	fsdp2 run --nproc-per-node 2 -- exported PROGRAM.pt2 STEPS
package main

import (
	"context"
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

const rows, length, vocabulary = 4, 7, 23

// tokensOf are a rank's own.
func tokensOf(step, rank int) *fsdp2.Tensor {
	tokens := make([]int64, rows*length)
	for i := range tokens {
		tokens[i] = int64((5*i + 11*step + 3*rank) % vocabulary)
	}
	return must(fsdp2.FromSlice(tokens, rows, length))
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: exported PROGRAM STEPS")
	}
	steps := must(strconv.Atoi(os.Args[2]))
	mesh := must(fsdp2.NewMesh(context.Background(), nil))
	defer mesh.Close()
	model := must(fsdp2.ModuleFromExported(os.Args[1], nil))
	defer model.Close()
	shard := must(fsdp2.NewShard(model, mesh, nil))
	defer shard.Close()
	adamw := fsdp2.DefaultAdamWOptions()
	adamw.LR = 3e-3
	optimizer := must(fsdp2.NewAdamW(shard, &adamw))
	defer optimizer.Close()
	step := must(fsdp2.NewStep(shard, optimizer, nil))
	defer step.Close()
	rank := must(mesh.Info()).Rank
	for i := 0; i < steps; i++ {
		tokens := tokensOf(i, rank)
		result := must(step.Run(tokens, tokens)) // the model shifts its labels itself
		tokens.Close()
		if rank == 0 {
			fmt.Printf("step %d loss %.6f\n", i, result.Loss)
		}
	}
}
