// Train fine-tunes a Hugging Face model for five steps on all ranks of the job:
//
//	fsdp2 run --nproc-per-node 2 -- train MODEL_DIRECTORY TOKEN_FILE
package main

import (
	"fmt"
	"os"
	"unsafe"

	"fsdp2/internal/capi"
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
	if live := capi.LiveHandles(); live != 0 {
		fmt.Fprintln(os.Stderr, "train: live handles:", live)
		os.Exit(1)
	}
}

func train(directory, tokenFile string) error {
	if err := capi.CheckVersion(capi.HeaderVersion); err != nil {
		return err
	}
	var mesh capi.Mesh
	if err := capi.MeshCreate(nil, &mesh); err != nil {
		return err
	}
	defer capi.MeshDestroy(mesh)
	job := capi.MeshInfo{StructSize: uint32(unsafe.Sizeof(capi.MeshInfo{}))}
	if err := capi.MeshGetInfo(mesh, &job); err != nil {
		return err
	}

	var module capi.Module
	if err := capi.ModuleFromPretrained(directory, nil, &module); err != nil {
		return err
	}
	defer capi.ModuleDestroy(module)
	model := capi.ModuleInfo{StructSize: uint32(unsafe.Sizeof(capi.ModuleInfo{}))}
	if err := capi.ModuleGetInfo(module, &model); err != nil {
		return err
	}
	var shard capi.Shard
	if err := capi.ShardCreate(module, mesh, nil, &shard); err != nil {
		return err
	}
	defer capi.ShardDestroy(shard)

	var adamw capi.AdamwOptions
	if err := capi.AdamwOptionsInit(&adamw, uint(unsafe.Sizeof(adamw))); err != nil {
		return err
	}
	adamw.Lr, adamw.Beta2, adamw.WeightDecay = 3e-3, 0.95, 0.1
	var optimizer capi.Optimizer
	if err := capi.OptimizerCreateAdamw(shard, &adamw, &optimizer); err != nil {
		return err
	}
	defer capi.OptimizerDestroy(optimizer)

	var data capi.LoaderOptions
	if err := capi.LoaderOptionsInit(&data, uint(unsafe.Sizeof(data))); err != nil {
		return err
	}
	data.SequenceLength, data.GlobalBatch, data.VocabSize = 32, 8, model.VocabSize
	var loader capi.Loader
	if err := capi.LoaderOpen(mesh, tokenFile, &data, &loader); err != nil {
		return err
	}
	defer capi.LoaderDestroy(loader)

	var step capi.Step
	if err := capi.StepCreate(shard, optimizer, nil, &step); err != nil {
		return err
	}
	defer capi.StepDestroy(step)
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

func runStep(step capi.Step, loader capi.Loader) (capi.StepResult, error) {
	result := capi.StepResult{StructSize: uint32(unsafe.Sizeof(capi.StepResult{}))}
	var batch [2]capi.Tensor // tokens, labels
	if err := capi.LoaderNext(loader, &batch[0], &batch[1]); err != nil {
		return result, err
	}
	defer capi.TensorDestroy(batch[0])
	defer capi.TensorDestroy(batch[1])
	err := capi.StepRun(step, &batch[0], uint(len(batch)), &result)
	return result, err
}
