package fsdp2_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fsdp2"
)

const llama = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 16,
	"intermediate_size": 32, "max_position_embeddings": 64, "num_attention_heads": 2, "num_hidden_layers": 2, "num_key_value_heads": 2,
	"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 256}`

// onLlama shards a small language model over two ranks.
func onLlama(t *testing.T, use func(mesh *fsdp2.Mesh, model *fsdp2.Module, shard *fsdp2.Shard) error) {
	t.Helper()
	defer noHandles(t)
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		model, err := fsdp2.ModuleFromConfig(llama, &fsdp2.ModuleOptions{Seed: 1})
		if err != nil {
			return err
		}
		defer model.Close()
		if err := model.SetRequiresGrad(false, "model.embed_tokens"); err != nil {
			return err
		}
		shard, err := fsdp2.NewShard(model, mesh, &fsdp2.ShardOptions{IgnoredNames: []string{"model.norm.weight"}})
		if err != nil {
			return err
		}
		defer shard.Close()
		return use(mesh, model, shard)
	})
}

// all returns the first error of calls that are made whatever the others say.
func all(errs ...error) error {
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	return nil
}

func TestLanguageModelReadsTrainsAndWrites(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	must(t, os.WriteFile(file, []byte(strings.Repeat("all work and no play ", 40)), 0o666))
	onLlama(t, func(mesh *fsdp2.Mesh, model *fsdp2.Module, shard *fsdp2.Shard) error {
		loader, err := fsdp2.OpenLoader(mesh, file, fsdp2.LoaderOptions{Format: fsdp2.TokensBytes, Order: fsdp2.OrderShuffled,
			SequenceLength: 16, GlobalBatch: 4, VocabSize: 256})
		if err != nil {
			return err
		}
		defer loader.Close()
		optimizer, err := fsdp2.NewSGD(shard, &fsdp2.SGDOptions{LR: 0.1, Momentum: 0.9})
		if err != nil {
			return err
		}
		defer optimizer.Close()
		if err := all(model.CheckpointActivations(fsdp2.ActivationOptions{}), loader.SetPosition(1)); err != nil {
			return err
		}
		first, last := 0.0, 0.0
		for i := 0; i < 5; i++ {
			last, err = stepByHand(model, shard, optimizer, loader)
			if err != nil {
				return err
			}
			if i == 0 {
				first = last
			}
		}
		position, err := loader.Position()
		if err != nil || position != 6 || last > first {
			return fmt.Errorf("position %d, loss from %v to %v, %v", position, first, last, err)
		}
		generate := fsdp2.DefaultGenerateOptions()
		generate.MaxNewTokens, generate.Temperature = 3, 0
		if err := model.Eval(); err != nil {
			return err
		}
		tokens, err := model.Generate([]int64{97, 108}, &generate)
		if err == nil && len(tokens) != 3 {
			err = fmt.Errorf("tokens %v", tokens)
		}
		return err
	})
}

func stepByHand(model *fsdp2.Module, shard *fsdp2.Shard, optimizer *fsdp2.Optimizer, loader *fsdp2.Loader) (float64, error) {
	tokens, labels, err := loader.Next()
	if err != nil {
		return 0, err
	}
	defer tokens.Close()
	defer labels.Close()
	positions, err := loader.Positions()
	if err != nil {
		return 0, err
	}
	defer positions.Close()
	if pixels, grids, seconds, err := loader.Videos(); err != nil || pixels != nil || grids != nil || seconds != nil {
		return 0, fmt.Errorf("expected no videos, found %v, %v and %v: %v", pixels, grids, seconds, err)
	}
	if pixels, grids, err := loader.Images(); err != nil || pixels != nil || grids != nil {
		return 0, fmt.Errorf("expected no images, found %v and %v: %v", pixels, grids, err)
	}
	boundaries, err := loader.Boundaries()
	if err != nil {
		return 0, err
	}
	defer boundaries.Close()
	loss := model.Forward(tokens, labels, positions)
	defer loss.Close()
	if err := loss.Backward(); err != nil {
		return 0, err
	}
	norm, err := shard.GradNorm(2)
	if err != nil {
		return 0, err
	}
	clipped, err := shard.ClipGradNorm(norm/2, 2)
	if err != nil || clipped != norm {
		return 0, fmt.Errorf("norm %v, then %v, %v", norm, clipped, err)
	}
	if overflow, err := shard.GradOverflow(); err != nil || overflow {
		return 0, fmt.Errorf("overflow %v, %v", overflow, err)
	}
	if err := all(shard.ScaleGrad(2), optimizer.Run(), shard.ZeroGrad(), model.ZeroGrad()); err != nil {
		return 0, err
	}
	return loss.Value()
}

// An AdamW whose moments are in bf16 beside one's in fp32.
func halvesMoments(shard *fsdp2.Shard, wide *fsdp2.Optimizer) error {
	options := fsdp2.DefaultAdamWOptions()
	options.StateDtype = fsdp2.DtypeBF16
	halved, err := fsdp2.NewAdamW(shard, &options)
	if err != nil {
		return err
	}
	defer halved.Close()
	few, err := halved.Info()
	many, other := wide.Info()
	if err != nil || other != nil || 2*(few.FullBytes-4*few.Parameters) != many.FullBytes-4*many.Parameters {
		return fmt.Errorf("%+v, %+v, %v, %v", few, many, err, other)
	}
	plan := fsdp2.DefaultPlanOptions()
	plan.OptimizerBytes = few.FullBytes
	if info, err := shard.Plan(&plan); err != nil || info.OptimizerBytes != few.FullBytes {
		return fmt.Errorf("%+v, %v", info, err)
	}
	return nil
}

func TestOptimizerGroups(t *testing.T) {
	onLlama(t, func(mesh *fsdp2.Mesh, model *fsdp2.Module, shard *fsdp2.Shard) error {
		optimizer, err := fsdp2.NewAdamW(shard, nil)
		if err != nil {
			return err
		}
		defer optimizer.Close()
		slow := fsdp2.DefaultAdamWOptions()
		slow.LR = 1e-4
		if err := halvesMoments(shard, optimizer); err != nil {
			return err
		}
		if err := all(optimizer.AddAdamWGroup([]string{"lm_head.weight"}, &slow), optimizer.ExemptFromDecay(fsdp2.NoDecayNorms),
			optimizer.ScaleLR("model.layers.0.mlp.*", 0.5), optimizer.SetLR(2e-3), optimizer.SetGroupLR(1, 3e-3),
			optimizer.SetGroupWeightDecay(1, 0.5)); err != nil {
			return err
		}
		info, err := optimizer.Info()
		if err != nil || info.Groups != 4 || info.Algorithm != fsdp2.AlgorithmAdamW {
			return fmt.Errorf("%+v, %v", info, err)
		}
		group, err := optimizer.Group(1)
		if err != nil || len(group.Parameters) != 1 || group.LR != 3e-3 || group.WeightDecay != 0.5 || group.Beta2 != 0.999 {
			return fmt.Errorf("%+v, %v", group, err)
		}
		state, err := optimizer.State(group.Parameters[0], "exp_avg", fsdp2.ParameterFull)
		if err != nil {
			return err
		}
		defer state.Close()
		shape, err := state.Shape()
		lr, _ := optimizer.LR()
		if err != nil || fmt.Sprint(shape) != "[256 16]" || lr != 2e-3 {
			return fmt.Errorf("state %v, lr %v, %v", shape, lr, err)
		}
		return nil
	})
}

func TestMuonTrainsAnMLPInTiles(t *testing.T) {
	onLlama(t, func(mesh *fsdp2.Mesh, model *fsdp2.Module, shard *fsdp2.Shard) error {
		mlps, err := model.TileMLPs(3)
		if err != nil || mlps != 2 {
			return fmt.Errorf("%d, %v", mlps, err)
		}
		if _, err := model.TileMLPs(0); !errors.Is(err, fsdp2.ErrInvalidArgument) {
			return fmt.Errorf("no tiles: %v", err)
		}
		options := fsdp2.DefaultMuonOptions()
		options.NewtonSchulzSteps = 4
		optimizer, err := fsdp2.NewMuon(shard, &options)
		if err != nil {
			return err
		}
		defer optimizer.Close()
		if err := all(optimizer.ExemptNamedFromDecay("lm_head.*"), optimizer.ExemptClassesFromDecay("LlamaMLP"),
			optimizer.ScaleNamedLR([]string{"*.q_proj.weight", "*.k_proj.weight"}, 0.5), optimizer.Run()); err != nil {
			return err
		}
		group, err := optimizer.Group(0)
		if err != nil || group.NewtonSchulzSteps != 4 || group.MatchedAdamWRMS != 0.2 || group.Momentum != 0.95 {
			return fmt.Errorf("%+v, %v", group, err)
		}
		info, err := optimizer.Info()
		if err != nil || info.Algorithm != fsdp2.AlgorithmMuon || info.Groups != 5 {
			return fmt.Errorf("%+v, %v", info, err)
		}
		return nil
	})
}

func TestUnitsAreSetAndDescribed(t *testing.T) {
	onLlama(t, func(mesh *fsdp2.Mesh, model *fsdp2.Module, shard *fsdp2.Shard) error {
		const unit = "model.layers.1"
		before, err := shard.UnitSettings(unit)
		if err != nil {
			return err
		}
		if err := all(shard.SetRequiresGradientSync(unit, false, true), shard.SetRequiresAllReduce(unit, false, true),
			shard.SetIsLastBackward(false), shard.SetReshardAfterForward(unit, false, true), shard.SetReshardAfterBackward(unit, false, true),
			shard.SetUnshardInBackward(unit, false), shard.SetReduceUnusedParameters(unit, true, true), shard.SetForceSumReduction(unit, true),
			shard.SetGradientDivideFactor(unit, 3), shard.SetForwardPrefetch("", unit), shard.SetBackwardPrefetch(unit, "model.layers.0"),
			shard.SetAllocateMemoryFromProcessGroup(unit, false),
		); err != nil {
			return err
		}
		after, err := shard.UnitSettings(unit)
		expected := fsdp2.UnitSettings{ReshardAfterForward: fsdp2.ReshardNever, ReduceUnusedParameters: true, ForceSumReduction: true,
			GradientDivideFactor: 3}
		if err != nil || after != expected {
			return fmt.Errorf("%+v, %v", after, err)
		}
		forward, _ := shard.ForwardPrefetch("")
		backward, _ := shard.BackwardPrefetch(unit)
		if last, err := shard.IsLastBackward(); err != nil || last || len(forward) != 1 || len(backward) != 1 {
			return fmt.Errorf("last %v, forward %v, backward %v, %v", last, forward, backward, err)
		}
		if err := all(shard.SetUnitSettings(unit, before), shard.FinalizeBackward(), shard.Reset(), shard.ClearEvents(), shard.ResetStats()); err != nil {
			return err
		}
		index, err := shard.UnitIndex(unit)
		if err != nil {
			return err
		}
		info, err := shard.UnitInfo(index)
		if count, _ := shard.UnitCount(); err != nil || count != 3 || info.Name != unit || info.IsRoot || info.Parameters != 9 {
			return fmt.Errorf("%d units, %+v, %v", count, info, err)
		}
		table, err := shard.Describe()
		if err != nil || !strings.Contains(table, unit) {
			return fmt.Errorf("%s, %v", table, err)
		}
		plan, err := shard.Plan(nil)
		if err != nil || plan.Units != 3 || plan.AllGathers == 0 {
			return fmt.Errorf("%+v, %v", plan, err)
		}
		text, err := shard.DescribePlan(&fsdp2.PlanOptions{OptimizerStates: 1})
		if err == nil && text == "" {
			err = fmt.Errorf("an empty plan")
		}
		return err
	})
}

func TestParametersAreFound(t *testing.T) {
	onLlama(t, func(mesh *fsdp2.Mesh, model *fsdp2.Module, shard *fsdp2.Shard) error {
		sharded, _ := shard.ParameterCount()
		every, err := model.ParameterCount()
		if err != nil || every != sharded+1 {
			return fmt.Errorf("%d of %d, %v", sharded, every, err)
		}
		index, err := model.ParameterIndex("model.norm.weight")
		if err != nil {
			return err
		}
		ignored, err := model.Parameter(index, fsdp2.ParameterLocal)
		if err != nil {
			return err
		}
		defer ignored.Close()
		if err := mesh.Broadcast(0, ignored); err != nil {
			return err
		}
		index, err = shard.ParameterIndex("lm_head.weight")
		if err != nil {
			return err
		}
		whole, err := shard.Parameter(index, fsdp2.ParameterFull)
		if err != nil {
			return err
		}
		defer whole.Close()
		shape, err := whole.Shape()
		if err != nil || fmt.Sprint(shape) != "[256 16]" {
			return fmt.Errorf("shape %v, %v", shape, err)
		}
		if err := shard.CastParameters(fsdp2.DtypeF64); err != nil {
			return err
		}
		info, err := shard.ParameterInfo(index)
		if err == nil && info.Dtype != fsdp2.DtypeF64 {
			err = fmt.Errorf("%+v", info)
		}
		return err
	})
}

func TestUnitsByHandAndDeferredValues(t *testing.T) {
	defer noHandles(t)
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		model, err := fsdp2.ModuleFromConfig(llama, nil)
		if err != nil {
			return err
		}
		defer model.Close()
		if err := all(model.MakeUnit(mesh, []string{"lm_head"}, nil),
			model.MakeUnits(mesh, &fsdp2.ShardOptions{Wrap: fsdp2.WrapKinds, WrapKinds: []string{"LlamaMLP"}})); err != nil {
			return err
		}
		shard, err := fsdp2.NewShard(model, mesh, &fsdp2.ShardOptions{DeferValues: true})
		if err != nil {
			return err
		}
		defer shard.Close()
		if count, err := shard.UnitCount(); err != nil || count != 6 {
			return fmt.Errorf("units %d, %v", count, err)
		}
		return shard.LoadValues()
	})
}

func TestEveryOwnerHasADuplicate(t *testing.T) {
	onLlama(t, func(mesh *fsdp2.Mesh, model *fsdp2.Module, shard *fsdp2.Shard) error {
		others := []interface{ Close() error }{}
		keep := func(other interface{ Close() error }, err error) error {
			others = append(others, other)
			return err
		}
		optimizer, err := fsdp2.NewAdamW(shard, nil)
		if err != nil {
			return err
		}
		step, err := fsdp2.NewStep(shard, optimizer, nil)
		if err != nil {
			return err
		}
		state, err := fsdp2.Checkpoint{Shard: shard, Optimizer: optimizer, Step: step}.State(false)
		if err != nil {
			return err
		}
		others = append(others, optimizer, step, state)
		second, err := step.Duplicate()
		if err := keep(second, err); err != nil {
			return err
		}
		a, errA := mesh.Duplicate()
		b, errB := model.Duplicate()
		c, errC := shard.Duplicate()
		d, errD := optimizer.Duplicate()
		e, errE := state.Duplicate()
		f, errF := shard.Mesh()
		if err := all(keep(a, errA), keep(b, errB), keep(c, errC), keep(d, errD), keep(e, errE), keep(f, errF)); err != nil {
			return err
		}
		for _, other := range others {
			if err := other.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestMemoryOfAStepIsPlanned(t *testing.T) {
	defer noHandles(t)
	shapes := fsdp2.DefaultMeshOptions()
	shapes.Backend, shapes.WorldSize, shapes.DeviceType = fsdp2.BackendFake, 4, "meta"
	mesh, err := fsdp2.NewMesh(context.Background(), &shapes)
	must(t, err)
	defer mesh.Close()
	model, err := fsdp2.ModuleFromConfig(llama, nil)
	must(t, err)
	defer model.Close()
	shard, err := fsdp2.NewShard(model, mesh, &fsdp2.ShardOptions{DeferValues: true})
	must(t, err)
	defer shard.Close()
	memoryOf := func(rows, microBatches int) (fsdp2.PlanMemory, error) {
		tokens, err := fsdp2.FromSlice(make([]int64, rows*8), rows, 8)
		must(t, err)
		defer tokens.Close()
		return shard.PlanMemory(nil, microBatches, tokens, tokens)
	}
	small, err := memoryOf(1, 1)
	must(t, err)
	large, err := memoryOf(64, 1)
	must(t, err)
	if small.PeakBytes != small.ModelBytes+small.ActivationBytes+small.OptimizerBytes || large.ActivationBytes <= 16*small.ActivationBytes {
		t.Errorf("%+v, %+v", small, large)
	}
	if _, err := memoryOf(1, 0); !errors.Is(err, fsdp2.ErrInvalidArgument) {
		t.Errorf("no micro batches: %v", err)
	}
	tokens, err := fsdp2.FromSlice(make([]int64, 8), 1, 8)
	must(t, err)
	defer tokens.Close()
	all, err := shard.ChooseReshard(nil, 1<<40, 1, tokens, tokens)
	must(t, err)
	settings, err := shard.UnitSettings("model.layers.0")
	must(t, err)
	if all.Candidates != 2 || all.Kept != 2 || settings.ReshardAfterForward != fsdp2.ReshardNever {
		t.Errorf("%+v, %+v", all, settings)
	}
	if again, err := shard.ChooseReshard(nil, all.PeakBytes, 1, tokens, tokens); err != nil || again != all || all.ReshardedPeakBytes != small.PeakBytes {
		t.Errorf("%+v, %+v, %v", again, all, err)
	}
	if _, err := shard.ChooseReshard(nil, 1, 1, tokens, tokens); !errors.Is(err, fsdp2.ErrOutOfMemory) {
		t.Errorf("a budget of one byte: %v", err)
	}
}
