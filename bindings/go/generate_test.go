package fsdp2_test

import (
	"errors"
	"fmt"
	"testing"

	"fsdp2"
)

var prompts = [][]int64{{97, 108, 108, 32}, {120}, {98, 121, 101}}

// stopping are options with which some prompts reach a stop token, and others do not.
func stopping() fsdp2.GenerateOptions {
	options := fsdp2.DefaultGenerateOptions()
	options.MaxNewTokens, options.TopP, options.Seed = 8, 0.95, 4
	for token := int64(0); token < 256; token += 8 {
		options.StopTokens = append(options.StopTokens, token)
	}
	return options
}

func TestGenerationStopsAtItsTokens(t *testing.T) {
	defer noHandles(t)
	model, err := fsdp2.ModuleFromConfig(llama, &fsdp2.ModuleOptions{Seed: 1})
	must(t, err)
	defer model.Close()
	options := stopping()
	batch, err := model.GenerateBatch(prompts, &options)
	must(t, err)
	stopped := 0
	for i, row := range batch {
		for j, token := range row {
			if isLast := j == len(row)-1; token%8 == 0 && !isLast {
				t.Errorf("row %d goes on behind its stop token: %v", i, row)
			}
		}
		if row[len(row)-1]%8 == 0 {
			stopped++
		} else if len(row) != options.MaxNewTokens {
			t.Errorf("row %d ends early: %v", i, row)
		}
		options.FirstRow = i
		alone, err := model.Generate(prompts[i], &options)
		must(t, err)
		equal(t, fmt.Sprint("row ", i), alone, row)
	}
	if len(batch) != len(prompts) || stopped == 0 || stopped == len(batch) {
		t.Errorf("%d of %v stopped", stopped, batch)
	}
}

// Rank 0 has two prompts, rank 1 one; then rank 0 has all of them.
func TestRanksGenerateForTheirOwnPrompts(t *testing.T) {
	whole, err := fsdp2.ModuleFromConfig(llama, &fsdp2.ModuleOptions{Seed: 1})
	must(t, err)
	options := stopping()
	expected, err := whole.GenerateBatch(prompts, &options)
	must(t, err)
	must(t, whole.Close())
	onLlama(t, func(mesh *fsdp2.Mesh, model *fsdp2.Module, shard *fsdp2.Shard) error {
		job, err := mesh.Info()
		if err != nil {
			return err
		}
		for _, cut := range []int{2, 3} {
			own, options := [][][]int64{prompts[:cut], prompts[cut:]}[job.Rank], stopping()
			options.FirstRow, options.ReshardAfterForward = job.Rank*cut, fsdp2.ReshardNever
			found, err := model.GenerateBatch(own, &options)
			if err != nil {
				return err
			}
			if right := [][][]int64{expected[:cut], expected[cut:]}[job.Rank]; fmt.Sprint(found) != fmt.Sprint(right) {
				return fmt.Errorf("expected %v, found %v", right, found)
			}
		}
		return nil
	})
}

func TestWrongGenerationIsRefused(t *testing.T) {
	defer noHandles(t)
	model, err := fsdp2.ModuleFromConfig(llama, nil)
	must(t, err)
	defer model.Close()
	for _, change := range []func(*fsdp2.GenerateOptions){
		func(options *fsdp2.GenerateOptions) { options.MaxNewTokens = -1 },
		func(options *fsdp2.GenerateOptions) { options.MaxNewTokens = 1<<24 + 1 },
		func(options *fsdp2.GenerateOptions) { options.TopP = 2 },
		func(options *fsdp2.GenerateOptions) { options.StopTokens = []int64{256} },
		func(options *fsdp2.GenerateOptions) { options.FirstRow = -1 },
	} {
		options := fsdp2.DefaultGenerateOptions()
		options.MaxNewTokens = 1
		change(&options)
		_, alone := model.Generate(prompts[0], &options)
		_, together := model.GenerateBatch(prompts, &options)
		if !errors.Is(alone, fsdp2.ErrInvalidArgument) || !errors.Is(together, fsdp2.ErrInvalidArgument) {
			t.Errorf("%+v: %v and %v", options, alone, together)
		}
	}
	seeing := fsdp2.DefaultGenerateOptions()
	pixels, err := fsdp2.FromSlice([]float32{0}, 1)
	must(t, err)
	defer pixels.Close()
	seeing.VisionInputs = []*fsdp2.Tensor{nil, pixels}
	_, err = model.Generate(prompts[0], &seeing)
	contains(t, err, "takes 0 inputs of images and videos, found 2")
	_, err = model.GenerateBatch([][]int64{{1}, {}}, nil)
	contains(t, err, "lengths")
	none, err := model.GenerateBatch(nil, nil)
	if err != nil || len(none) != 0 {
		t.Errorf("no prompts: %v, %v", none, err)
	}
}
