// Units looks at a sharded model's units and steers them by hand:
//
//	fsdp2 run --nproc-per-node 2 -- units MODEL_DIRECTORY TOKEN_FILE
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"fsdp2"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: units MODEL_DIRECTORY TOKEN_FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "units:", err)
		os.Exit(1)
	}
	if live := fsdp2.LiveHandles(); live != 0 {
		fmt.Fprintln(os.Stderr, "units: live handles:", live)
		os.Exit(1)
	}
}

func run(directory, tokenFile string) error {
	mesh, err := fsdp2.NewMesh(context.Background(), nil)
	if err != nil {
		return err
	}
	defer mesh.Close()
	job, err := mesh.Info()
	if err != nil {
		return err
	}
	model, err := fsdp2.ModuleFromPretrained(directory, nil)
	if err != nil {
		return err
	}
	defer model.Close()
	shard, err := fsdp2.NewShard(model, mesh, nil)
	if err != nil {
		return err
	}
	defer shard.Close()

	units, err := unshardByHand(shard)
	if err != nil {
		return err
	}
	placement, err := describePlacement(shard, "model.embed_tokens.weight")
	if err != nil {
		return err
	}
	gradients, err := countGradients(mesh, model, shard, tokenFile)
	if err != nil {
		return err
	}
	if job.Rank == 0 {
		fmt.Printf("%s\n%s\n%s\n", units, placement, gradients)
	}
	return nil
}

func unshardByHand(shard *fsdp2.Shard) (string, error) {
	const unit = "model.layers.0"
	if err := shard.Unshard(unit, true); err != nil {
		return "", err
	}
	if err := shard.WaitUnshard(unit); err != nil {
		return "", err
	}
	unsharded, err := shard.Stats()
	if err != nil {
		return "", err
	}
	if err := shard.Reshard(unit); err != nil {
		return "", err
	}
	sharded, err := shard.Stats()
	if err != nil {
		return "", err
	}
	events, err := shard.Events()
	if err != nil {
		return "", err
	}
	var names []string
	for _, event := range events {
		names = append(names, event.Kind.String())
	}
	return fmt.Sprintf("unsharded bytes: %d, then %d\nevents: %s",
		unsharded.UnshardedBytes, sharded.UnshardedBytes, strings.Join(names, ", ")), nil
}

func describePlacement(shard *fsdp2.Shard, name string) (string, error) {
	index, err := shard.ParameterIndex(name)
	if err != nil {
		return "", err
	}
	info, err := shard.ParameterInfo(index)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: %d x %d, here %d x %d, sharded on dim %d over %d ranks", name,
		info.Shape[0], info.Shape[1], info.LocalShape[0], info.LocalShape[1], info.ShardDim, info.ShardRanks), nil
}

func countGradients(mesh *fsdp2.Mesh, model *fsdp2.Module, shard *fsdp2.Shard, tokenFile string) (string, error) {
	info, err := model.Info()
	if err != nil {
		return "", err
	}
	loader, err := fsdp2.OpenLoader(mesh, tokenFile,
		fsdp2.LoaderOptions{SequenceLength: 32, GlobalBatch: 2, VocabSize: info.VocabSize})
	if err != nil {
		return "", err
	}
	defer loader.Close()
	tokens, labels, err := loader.Next()
	if err != nil {
		return "", err
	}
	defer tokens.Close()
	defer labels.Close()

	ready := 0
	err = shard.SetGradientReady("", true, func(fsdp2.GradientInfo, *fsdp2.Tensor) error {
		ready++
		return nil
	})
	if err != nil {
		return "", err
	}
	defer shard.SetGradientReady("", true, nil)
	loss := model.Forward(tokens, labels)
	defer loss.Close()
	if err := loss.Backward(); err != nil {
		return "", err
	}
	parameters, err := shard.ParameterCount()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("gradients ready: %d of %d parameters", ready, parameters), nil
}
