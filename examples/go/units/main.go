// Units looks at a sharded model's units and steers them by hand:
//
//	fsdp2 run --nproc-per-node 2 -- units MODEL_DIRECTORY TOKEN_FILE
package main

/*
#cgo pkg-config: fsdp2
#include <fsdp2/fsdp2.h>
#include <stdlib.h>

fsdp2_status countGradient(fsdp2_gradient_info* info, fsdp2_tensor gradient, void* userData);
*/
import "C"

import (
	"fmt"
	"os"
	"runtime/cgo"
	"strings"
	"unsafe"

	"fsdp2/internal/capi"
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
	if live := capi.LiveHandles(); live != 0 {
		fmt.Fprintln(os.Stderr, "units: live handles:", live)
		os.Exit(1)
	}
}

func run(directory, tokenFile string) error {
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
	var shard capi.Shard
	if err := capi.ShardCreate(module, mesh, nil, &shard); err != nil {
		return err
	}
	defer capi.ShardDestroy(shard)

	units, err := unshardByHand(shard)
	if err != nil {
		return err
	}
	placement, err := describePlacement(shard, "model.embed_tokens.weight")
	if err != nil {
		return err
	}
	gradients, err := countGradients(mesh, module, shard, tokenFile)
	if err != nil {
		return err
	}
	if job.Rank == 0 {
		fmt.Printf("%s\n%s\n%s\n", units, placement, gradients)
	}
	return nil
}

func unshardByHand(shard capi.Shard) (string, error) {
	const unit = "model.layers.0"
	stats := capi.ShardStats{StructSize: uint32(unsafe.Sizeof(capi.ShardStats{}))}
	if err := capi.ShardUnshard(shard, unit, 1); err != nil {
		return "", err
	}
	if err := capi.ShardWaitUnshard(shard, unit); err != nil {
		return "", err
	}
	if err := capi.ShardGetStats(shard, &stats); err != nil {
		return "", err
	}
	unsharded := stats.UnshardedBytes
	if err := capi.ShardReshard(shard, unit); err != nil {
		return "", err
	}
	if err := capi.ShardGetStats(shard, &stats); err != nil {
		return "", err
	}

	var kinds [16]int32
	var units [16]uint
	var count uint
	if err := capi.ShardGetEvents(shard, &kinds[0], &units[0], uint(len(kinds)), &count); err != nil {
		return "", err
	}
	names := map[int32]string{
		capi.EventAllGather: "all-gather", capi.EventUnshard: "unshard", capi.EventReshard: "reshard",
	}
	var events []string
	for _, kind := range kinds[:count] {
		events = append(events, names[kind])
	}
	return fmt.Sprintf("unsharded bytes: %d, then %d\nevents: %s",
		unsharded, stats.UnshardedBytes, strings.Join(events, ", ")), nil
}

func describePlacement(shard capi.Shard, name string) (string, error) {
	var index uint
	if err := capi.ShardGetParameterIndex(shard, name, &index); err != nil {
		return "", err
	}
	info := capi.ParameterInfo{StructSize: uint32(unsafe.Sizeof(capi.ParameterInfo{}))}
	if err := capi.ShardGetParameterInfo(shard, index, &info); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: %d x %d, here %d x %d, sharded on dim %d over %d ranks", name,
		info.Shape[0], info.Shape[1], info.LocalShape[0], info.LocalShape[1], info.ShardDim, info.ShardRanks), nil
}

//export countGradient
func countGradient(info *C.fsdp2_gradient_info, gradient C.fsdp2_tensor, userData unsafe.Pointer) C.fsdp2_status {
	*(*cgo.Handle)(userData).Value().(*int)++
	return 0
}

func countGradients(mesh capi.Mesh, module capi.Module, shard capi.Shard, tokenFile string) (string, error) {
	model := capi.ModuleInfo{StructSize: uint32(unsafe.Sizeof(capi.ModuleInfo{}))}
	if err := capi.ModuleGetInfo(module, &model); err != nil {
		return "", err
	}
	var data capi.LoaderOptions
	if err := capi.LoaderOptionsInit(&data, uint(unsafe.Sizeof(data))); err != nil {
		return "", err
	}
	data.SequenceLength, data.GlobalBatch, data.VocabSize = 32, 2, model.VocabSize
	var loader capi.Loader
	if err := capi.LoaderOpen(mesh, tokenFile, &data, &loader); err != nil {
		return "", err
	}
	defer capi.LoaderDestroy(loader)
	var batch [2]capi.Tensor // tokens, labels
	if err := capi.LoaderNext(loader, &batch[0], &batch[1]); err != nil {
		return "", err
	}
	defer capi.TensorDestroy(batch[0])
	defer capi.TensorDestroy(batch[1])

	// C keeps the address of a handle, never that of the count itself, which is Go's.
	var ready int
	handle := (*cgo.Handle)(C.malloc(C.size_t(unsafe.Sizeof(cgo.Handle(0)))))
	*handle = cgo.NewHandle(&ready)
	defer C.free(unsafe.Pointer(handle))
	defer handle.Delete()
	count := unsafe.Pointer(C.fsdp2_gradient_ready_fn(C.countGradient))
	if err := capi.ShardSetGradientReady(shard, "", 1, count, unsafe.Pointer(handle), nil); err != nil {
		return "", err
	}
	defer capi.ShardSetGradientReady(shard, "", 1, nil, nil, nil)

	var loss capi.Tensor
	var outputs uint
	if err := capi.ModuleForward(module, &batch[0], uint(len(batch)), 0, &loss, 1, &outputs); err != nil {
		return "", err
	}
	defer capi.TensorDestroy(loss)
	if err := capi.TensorBackward(loss); err != nil {
		return "", err
	}
	var parameters uint
	if err := capi.ShardGetParameterCount(shard, &parameters); err != nil {
		return "", err
	}
	return fmt.Sprintf("gradients ready: %d of %d parameters", ready, parameters), nil
}
