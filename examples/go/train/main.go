// Train fine-tunes a Hugging Face model for five steps on all ranks of the job:
//
//	fsdp2 run --nproc-per-node 2 -- train MODEL_DIRECTORY TOKEN_FILE
package main

import (
	"context"
	"fmt"
	"os"

	"fsdp2"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: train MODEL_DIRECTORY TOKEN_FILE")
		os.Exit(2)
	}
	if err := train(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
	if live := fsdp2.LiveHandles(); live != 0 {
		fmt.Fprintln(os.Stderr, "train: live handles:", live)
		os.Exit(1)
	}
}

func train(directory, tokenFile string) error {
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
	info, err := model.Info()
	if err != nil {
		return err
	}
	shard, err := fsdp2.NewShard(model, mesh, nil)
	if err != nil {
		return err
	}
	defer shard.Close()

	adamw := fsdp2.DefaultAdamWOptions()
	adamw.LR, adamw.Beta2, adamw.WeightDecay = 3e-3, 0.95, 0.1
	optimizer, err := fsdp2.NewAdamW(shard, &adamw)
	if err != nil {
		return err
	}
	defer optimizer.Close()
	loader, err := fsdp2.OpenLoader(mesh, tokenFile,
		fsdp2.LoaderOptions{SequenceLength: 32, GlobalBatch: 8, VocabSize: info.VocabSize})
	if err != nil {
		return err
	}
	defer loader.Close()
	step, err := fsdp2.NewStep(shard, optimizer, nil)
	if err != nil {
		return err
	}
	defer step.Close()

	for i := 0; i < 5; i++ {
		result, err := runStep(step, loader)
		if err != nil {
			return err
		}
		if job.Rank == 0 {
			fmt.Printf("step %d loss %.6f\n", result.Step, result.Loss)
		}
	}
	return nil
}

func runStep(step *fsdp2.Step, loader *fsdp2.Loader) (fsdp2.StepResult, error) {
	tokens, labels, err := loader.Next()
	if err != nil {
		return fsdp2.StepResult{}, err
	}
	defer tokens.Close()
	defer labels.Close()
	return step.Run(tokens, labels)
}
