// Data trains on data that the program makes, where the library reads them:
//
//	fsdp2 run --nproc-per-node 2 -- data MODEL_DIRECTORY STEPS
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

const rows, length, vocabulary = 8, 32, 384

// fill writes this rank's rows of a step's batch into the tensors' own memory: each token is followed by the one that is 5 more.
func fill(tokens, labels *fsdp2.Tensor, step, firstRow int) error {
	return fsdp2.WithData(tokens, func(tokens []int64) error {
		return fsdp2.WithData(labels, func(labels []int64) error {
			for i := range tokens {
				row, column := firstRow+i/length, i%length
				tokens[i] = int64((31*row + 17*step + 5*column) % vocabulary)
				labels[i] = (tokens[i] + 5) % vocabulary
			}
			return nil
		})
	})
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: data MODEL_DIRECTORY STEPS")
	}
	steps := must(strconv.Atoi(os.Args[2]))
	mesh := must(fsdp2.NewMesh(context.Background(), nil))
	defer mesh.Close()
	model := must(fsdp2.ModuleFromPretrained(os.Args[1], nil))
	defer model.Close()
	shard := must(fsdp2.NewShard(model, mesh, nil))
	defer shard.Close()
	adamw := fsdp2.DefaultAdamWOptions()
	adamw.LR = 3e-3
	optimizer := must(fsdp2.NewAdamW(shard, &adamw))
	defer optimizer.Close()
	step := must(fsdp2.NewStep(shard, optimizer, nil))
	defer step.Close()

	job := must(mesh.Info())
	own := rows / job.WorldSize
	tokens := must(fsdp2.FromSlice(make([]int64, own*length), own, length))
	defer tokens.Close()
	labels := must(fsdp2.FromSlice(make([]int64, own*length), own, length))
	defer labels.Close()
	for i := 0; i < steps; i++ {
		if err := fill(tokens, labels, i, job.Rank*own); err != nil {
			log.Fatal(err)
		}
		result := must(step.Run(tokens, labels))
		if job.Rank == 0 {
			fmt.Printf("step %d loss %.6f\n", i, result.Loss)
		}
	}
}
