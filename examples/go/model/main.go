// Model is a small transformer written in Go: made of LibTorch's operators, its layers sharded as units and recomputed in backward.
//
//	fsdp2 run --nproc-per-node 2 -- model TOKEN_FILE STEPS [GROUP]
//
// With GROUP it computes in bf16 and is sharded over groups of so many ranks, each group a replica.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"fsdp2"
)

const (
	vocabulary = 384
	width      = 32
	heads      = 4
	layers     = 2
	sequence   = 32
	inner      = 64
)

func attention(x, qkv, out *fsdp2.Tensor) *fsdp2.Tensor {
	all := x.Linear(qkv, nil).View(-1, sequence, 3, heads, width/heads).Permute(2, 0, 3, 1, 4)
	query, key, value := all.Select(0, 0), all.Select(0, 1), all.Select(0, 2)
	mixed := query.ScaledDotProductAttention(key, value, fsdp2.Attention{Causal: true})
	return mixed.Transpose(1, 2).Reshape(-1, sequence, width).Linear(out, nil)
}

func runLayer(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
	p, x := call.Parameter, inputs[0]
	x = x.Add(attention(x.RMSNorm(p("attention_norm"), 1e-5), p("qkv"), p("out")))
	y := x.RMSNorm(p("mlp_norm"), 1e-5).Linear(p("up"), nil).Gelu().Linear(p("down"), nil)
	return []*fsdp2.Tensor{x.Add(y)}, nil
}

// newModel makes a module from tokens and labels to the loss. Its parts live on in it.
func newModel() (*fsdp2.Module, error) {
	var parts []*fsdp2.Module
	run := func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
		if len(inputs) != 2 {
			return nil, fmt.Errorf("expected tokens and labels, found %d inputs", len(inputs))
		}
		p := call.Parameter
		x := p("tokens").Embedding(inputs[0]).Add(p("positions"))
		for _, layer := range parts {
			x = layer.Forward(x)
		}
		logits := x.RMSNorm(p("norm"), 1e-5).Linear(p("head"), nil)
		logits = logits.View(-1, vocabulary).To(fsdp2.DtypeF32) // a loss wants more digits
		loss := logits.CrossEntropy(inputs[1].View(-1))
		return []*fsdp2.Tensor{loss}, nil
	}
	model, err := newModule("Transformer", run, []parameter{
		{"tokens", []int{vocabulary, width}}, {"positions", []int{sequence, width}}, {"norm", []int{width}},
		{"head", []int{vocabulary, width}},
	})
	for i := 0; i < layers && err == nil; i++ {
		var layer *fsdp2.Module
		layer, err = newModule("Layer", runLayer, []parameter{
			{"attention_norm", []int{width}}, {"qkv", []int{3 * width, width}}, {"out", []int{width, width}},
			{"mlp_norm", []int{width}}, {"up", []int{inner, width}}, {"down", []int{width, inner}},
		})
		if err == nil {
			parts = append(parts, layer)
			err = model.AddChild(fmt.Sprintf("layer%d", i), layer)
		}
	}
	return model, err
}

type parameter struct {
	name  string
	shape []int
}

// newModule makes a module whose vectors are the weights of norms.
func newModule(kind string, run fsdp2.ForwardFunc, parameters []parameter) (*fsdp2.Module, error) {
	module, err := fsdp2.NewCustomModule(kind, &fsdp2.ModuleOptions{Seed: 1}, run)
	if err != nil {
		return nil, err
	}
	for _, parameter := range parameters {
		options := fsdp2.DefaultParameterOptions()
		if len(parameter.shape) == 1 {
			options.Init = fsdp2.InitOnes
		}
		if err := module.AddParameter(parameter.name, parameter.shape, &options); err != nil {
			return nil, err
		}
	}
	return module, nil
}

// train trains on all ranks or, if group is not 0, on groups of so many, in bf16.
func train(tokenFile string, steps, group int) error {
	joining := fsdp2.DefaultMeshOptions()
	joining.FSDPSize = group
	sharding := fsdp2.ShardOptions{Wrap: fsdp2.WrapKinds, WrapKinds: []string{"Layer"}}
	if group != 0 {
		sharding.ParamDtype, sharding.ReduceDtype = fsdp2.DtypeBF16, fsdp2.DtypeF32
	}
	mesh, err := fsdp2.NewMesh(context.Background(), &joining)
	if err != nil {
		return err
	}
	defer mesh.Close()
	job, err := mesh.Info()
	if err != nil {
		return err
	}
	model, err := newModel()
	if err != nil {
		return err
	}
	defer model.Close()
	shard, err := fsdp2.NewShard(model, mesh, &sharding)
	if err != nil {
		return err
	}
	defer shard.Close()
	if err := model.CheckpointActivations(fsdp2.ActivationOptions{Kinds: []string{"Layer"}}); err != nil {
		return err
	}
	adamw := fsdp2.DefaultAdamWOptions()
	adamw.LR = 3e-3
	optimizer, err := fsdp2.NewAdamW(shard, &adamw)
	if err != nil {
		return err
	}
	defer optimizer.Close()
	loader, err := fsdp2.OpenLoader(mesh, tokenFile,
		fsdp2.LoaderOptions{SequenceLength: sequence, GlobalBatch: 8, VocabSize: vocabulary})
	if err != nil {
		return err
	}
	defer loader.Close()
	step, err := fsdp2.NewStep(shard, optimizer, nil)
	if err != nil {
		return err
	}
	defer step.Close()
	for i := 0; i < steps; i++ {
		tokens, labels, err := loader.Next()
		if err != nil {
			return err
		}
		result, err := step.Run(tokens, labels)
		tokens.Close()
		labels.Close()
		if err != nil {
			return err
		}
		if job.Rank == 0 {
			fmt.Printf("step %d loss %.6f\n", result.Step, result.Loss)
		}
	}
	return nil
}

func main() {
	if len(os.Args) != 3 && len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: model TOKEN_FILE STEPS [GROUP]")
		os.Exit(2)
	}
	steps, err := strconv.Atoi(os.Args[2])
	group := 0
	if err == nil && len(os.Args) == 4 {
		group, err = strconv.Atoi(os.Args[3])
	}
	if err == nil {
		err = train(os.Args[1], steps, group)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "model:", err)
		os.Exit(1)
	}
}
