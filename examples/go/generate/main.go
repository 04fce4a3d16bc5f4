// Generate uses a model without training it: its loss on a text of tokens, and how it goes on.
//
//	fsdp2 run --nproc-per-node 2 -- generate MODEL_DIRECTORY
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"fsdp2"
)

// must ends the program on an error; the other ranks see that it has ended.
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

const length = 16

func loss(model *fsdp2.Module, text []int64) float64 {
	tokens := must(fsdp2.FromSlice(text[:length], 1, length))
	defer tokens.Close()
	labels := must(fsdp2.FromSlice(text[1:], 1, length))
	defer labels.Close()
	loss := must(model.ForwardAll(fsdp2.ForwardOptions{NoGrad: true}, tokens, labels))[0]
	defer loss.Close()
	return must(loss.Value())
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: generate MODEL_DIRECTORY")
	}
	text := make([]int64, length+1)
	for i := range text {
		text[i] = int64(7 * i % 384)
	}
	mesh := must(fsdp2.NewMesh(context.Background(), nil))
	defer mesh.Close()
	model := must(fsdp2.ModuleFromPretrained(os.Args[1], nil))
	defer model.Close()
	if err := model.Eval(); err != nil { // no dropout
		log.Fatal(err)
	}
	shard := must(fsdp2.NewShard(model, mesh, nil))
	defer shard.Close()
	loss := loss(model, text)
	options := fsdp2.DefaultGenerateOptions()
	options.MaxNewTokens, options.Temperature = 8, 0 // always the most likely token
	tokens := must(model.Generate(text[:length], &options))
	if must(mesh.Info()).Rank == 0 {
		fmt.Printf("loss %.6f\ntokens %s\n", loss, strings.Trim(fmt.Sprint(tokens), "[]"))
	}
}
