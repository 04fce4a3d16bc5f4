// Layers is a small transformer put together from the library's layers. The program writes two forwards of its own: the sum around each
// sub-layer, and the loss.
//
//	fsdp2 run --nproc-per-node 2 -- layers TOKEN_FILE STEPS
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"fsdp2"
)

const (
	vocabulary = 384
	sequence   = 32
	width      = 32
	layers     = 2
)

var (
	norm      = options{"normalized_shape": width, "eps": 1e-5}
	attention = options{"embed_dim": width, "num_heads": 4, "num_kv_heads": 2, "is_causal": true, "rope_theta": 10000, "bias": false}
	mlp       = options{"hidden_size": width, "intermediate_size": 64, "bias": false}
	embedding = options{"num_embeddings": vocabulary, "embedding_dim": width}
	head      = options{"in_features": width, "out_features": vocabulary, "bias": false}
)

type options = fsdp2.LayerOptions

// must ends the program on an error; the other ranks see that it has ended.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal("layers: ", err)
	}
}

func add(to *fsdp2.Module, name, kind string, options options) {
	check(to.AddChild(name, must(fsdp2.NewLayer(kind, options, nil))))
}

// around makes a module whose forward takes what it is given, and what the inner module makes of the first input.
func around(kind string, inner *fsdp2.Module, forward func(inputs []*fsdp2.Tensor, made *fsdp2.Tensor) *fsdp2.Tensor) *fsdp2.Module {
	module := must(fsdp2.NewCustomModule(kind, &fsdp2.ModuleOptions{Seed: 1},
		func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
			return []*fsdp2.Tensor{forward(inputs, inner.Forward(inputs[0]))}, nil
		}))
	check(module.AddChild("inner", inner))
	return module
}

func residual(kind string, options options) *fsdp2.Module {
	inner := must(fsdp2.NewLayer("Sequential", nil, nil))
	add(inner, "norm", "RMSNorm", norm)
	add(inner, "layer", kind, options)
	return around("Residual", inner, func(inputs []*fsdp2.Tensor, made *fsdp2.Tensor) *fsdp2.Tensor { return inputs[0].Add(made) })
}

// newModel makes a module from tokens and labels [B,S] to the loss. Its parts live on in it.
func newModel() *fsdp2.Module {
	chain := must(fsdp2.NewLayer("Sequential", nil, nil))
	add(chain, "embedding", "Embedding", embedding)
	for i := 0; i < layers; i++ {
		check(chain.AddChild(fmt.Sprint("attention", i), residual("MultiheadAttention", attention)))
		check(chain.AddChild(fmt.Sprint("mlp", i), residual("GatedMLP", mlp)))
	}
	add(chain, "norm", "RMSNorm", norm)
	add(chain, "head", "Linear", head)
	return around("Transformer", chain, func(inputs []*fsdp2.Tensor, logits *fsdp2.Tensor) *fsdp2.Tensor {
		return logits.Transpose(1, 2).CrossEntropy(inputs[1]) // classes come second: [B,V,S]
	})
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: layers TOKEN_FILE STEPS")
	}
	steps := must(strconv.Atoi(os.Args[2]))
	mesh := must(fsdp2.NewMesh(context.Background(), nil))
	defer mesh.Close()
	rank := must(mesh.Info()).Rank
	model := newModel()
	defer model.Close()
	shard := must(fsdp2.NewShard(model, mesh, &fsdp2.ShardOptions{Wrap: fsdp2.WrapKinds, WrapKinds: []string{"Residual"}}))
	defer shard.Close()
	adamw := fsdp2.DefaultAdamWOptions()
	adamw.LR = 3e-3
	optimizer := must(fsdp2.NewAdamW(shard, &adamw))
	defer optimizer.Close()
	loader := must(fsdp2.OpenLoader(mesh, os.Args[1],
		fsdp2.LoaderOptions{SequenceLength: sequence, GlobalBatch: 8, VocabSize: vocabulary}))
	defer loader.Close()
	step := must(fsdp2.NewStep(shard, optimizer, nil))
	defer step.Close()
	for i := 0; i < steps; i++ {
		tokens, labels, err := loader.Next()
		check(err)
		result := must(step.Run(tokens, labels))
		tokens.Close()
		labels.Close()
		if rank == 0 {
			fmt.Printf("step %d loss %.6f\n", result.Step, result.Loss)
		}
	}
}
