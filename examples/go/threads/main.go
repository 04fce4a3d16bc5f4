// Threads runs ranks as goroutines of one program, without a launcher: each joins the same name.
//
//	threads MODEL_DIRECTORY TOKEN_FILE RANKS STEPS
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"

	"fsdp2"
)

// must ends the program on an error; the other ranks see that it has ended.
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func train(directory, tokenFile string, rank, ranks, steps int) {
	joining := fsdp2.DefaultMeshOptions()
	joining.Rendezvous, joining.Rank, joining.WorldSize = "thread://example", rank, ranks
	mesh := must(fsdp2.NewMesh(context.Background(), &joining))
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
		fsdp2.LoaderOptions{SequenceLength: 32, GlobalBatch: 8, VocabSize: must(model.Info()).VocabSize}))
	defer loader.Close()
	step := must(fsdp2.NewStep(shard, optimizer, nil))
	defer step.Close()
	for i := 0; i < steps; i++ {
		tokens, labels, err := loader.Next()
		if err != nil {
			log.Fatal(err)
		}
		result := must(step.Run(tokens, labels))
		tokens.Close()
		labels.Close()
		if rank == 0 {
			fmt.Printf("step %d loss %.6f\n", result.Step, result.Loss)
		}
	}
}

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: threads MODEL_DIRECTORY TOKEN_FILE RANKS STEPS")
	}
	ranks, steps := must(strconv.Atoi(os.Args[3])), must(strconv.Atoi(os.Args[4]))
	var running sync.WaitGroup
	for rank := 0; rank < ranks; rank++ {
		running.Add(1)
		go func(rank int) {
			defer running.Done()
			train(os.Args[1], os.Args[2], rank, ranks, steps)
		}(rank)
	}
	running.Wait()
}
