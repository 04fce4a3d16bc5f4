package fsdp2_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"fsdp2"
)

func TestKeptBuffersAreGivenBack(t *testing.T) {
	defer noHandles(t)
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		model, err := fsdp2.ModuleFromConfig(llama, nil)
		if err != nil {
			return err
		}
		defer model.Close()
		shard, err := fsdp2.NewShard(model, mesh, &fsdp2.ShardOptions{KeepBuffers: true})
		if err != nil {
			return err
		}
		defer shard.Close()
		tokens, err := fsdp2.FromSlice([]int64{1, 2, 3, 4}, 1, 4)
		if err != nil {
			return err
		}
		defer tokens.Close()
		loss := model.Forward(tokens, tokens)
		defer loss.Close()
		if err := loss.Backward(); err != nil {
			return err
		}
		kept, err := shard.Stats()
		if err != nil || kept.KeptBytes == 0 {
			return fmt.Errorf("kept %+v, %v", kept, err)
		}
		if err := shard.ReleaseBuffers(); err != nil {
			return err
		}
		left, err := shard.Stats()
		if err == nil && left.KeptBytes != 0 {
			err = fmt.Errorf("kept %d bytes, of which %d are left", kept.KeptBytes, left.KeptBytes)
		}
		return err
	})
}

func TestAGroupOfSGDAndAModelForTransformers(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "model")
	onLlama(t, func(mesh *fsdp2.Mesh, model *fsdp2.Module, shard *fsdp2.Shard) error {
		optimizer, err := fsdp2.NewSGD(shard, &fsdp2.SGDOptions{LR: 0.1})
		if err != nil {
			return err
		}
		defer optimizer.Close()
		if err := all(optimizer.AddSGDGroup([]string{"lm_head.weight"}, &fsdp2.SGDOptions{LR: 0.2, Momentum: 0.5}),
			fsdp2.Checkpoint{Shard: shard}.SavePretrained(directory), model.Eval()); err != nil {
			return err
		}
		if group, err := optimizer.Group(1); err != nil || group.LR != 0.2 || len(group.Parameters) != 1 {
			return fmt.Errorf("%+v, %v", group, err)
		}
		if training, err := model.IsTraining(); err != nil || training {
			return fmt.Errorf("training: %v, %v", training, err)
		}
		same, err := fsdp2.ModuleFromPretrained(directory, nil)
		if err != nil {
			return err
		}
		return same.Close()
	})
}
