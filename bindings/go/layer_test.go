package fsdp2_test

import (
	"errors"
	"fmt"
	"testing"

	"fsdp2"
)

func names(model *fsdp2.Module) ([]string, error) {
	count, err := model.ParameterCount()
	if err != nil {
		return nil, err
	}
	found := make([]string, count)
	for i := range found {
		info, err := model.ParameterInfo(i)
		if err != nil {
			return nil, err
		}
		found[i] = fmt.Sprint(info.Names[0], info.Shape)
	}
	return found, nil
}

func TestALayerByNameHasPyTorchsParameters(t *testing.T) {
	defer noHandles(t)
	for _, layer := range []struct {
		kind       string
		options    fsdp2.LayerOptions
		parameters []string
	}{
		{"Linear", fsdp2.LayerOptions{"in_features": 8, "out_features": 4}, []string{"weight[4 8]", "bias[4]"}},
		{"Linear", fsdp2.LayerOptions{"in_features": 8, "out_features": 4, "bias": false}, []string{"weight[4 8]"}},
		{"LayerNorm", fsdp2.LayerOptions{"normalized_shape": []int{2, 8}, "eps": 1e-6}, []string{"weight[2 8]", "bias[2 8]"}},
		{"Conv2d", fsdp2.LayerOptions{"in_channels": 2, "out_channels": 3, "kernel_size": [2]int{2, 4}, "bias": false},
			[]string{"weight[3 2 2 4]"}},
		{"MultiheadAttention", fsdp2.LayerOptions{"embed_dim": 8, "num_heads": 2},
			[]string{"in_proj_weight[24 8]", "in_proj_bias[24]", "out_proj.weight[8 8]", "out_proj.bias[8]"}},
		{"MLP", fsdp2.LayerOptions{"hidden_size": 8, "intermediate_size": 16, "hidden_act": "relu", "bias": false},
			[]string{"up_proj.weight[16 8]", "down_proj.weight[8 16]"}},
		{"GELU", nil, nil},
	} {
		module, err := fsdp2.NewLayer(layer.kind, layer.options, &fsdp2.ModuleOptions{Seed: 1})
		must(t, err)
		found, err := names(module)
		must(t, err)
		equal(t, layer.kind, found, layer.parameters)
		must(t, module.Close())
	}
	_, err := fsdp2.NewLayer("Linear", fsdp2.LayerOptions{"in_feature": 8}, nil)
	if !errors.Is(err, fsdp2.ErrInvalidArgument) {
		t.Errorf("found %v", err)
	}
	contains(t, err, "in_feature", "in_features")
	_, err = fsdp2.NewLayer("Liner", nil, nil)
	contains(t, err, "did you mean Linear?")
	_, err = fsdp2.NewLayer("Dropout", fsdp2.LayerOptions{"p": func() {}}, nil)
	contains(t, err, "Dropout", "func()")
}

// newChain is a Sequential of the layers, by the names "0", "1" and so on, whose parts it owns.
func newChain(layers ...*fsdp2.Module) (*fsdp2.Module, error) {
	chain, err := fsdp2.NewLayer("Sequential", nil, &fsdp2.ModuleOptions{Seed: 2})
	for i := 0; i < len(layers) && err == nil; i++ {
		err = chain.AddChild(fmt.Sprint(i), layers[i])
	}
	return chain, err
}

func newLinear(in, out int) (*fsdp2.Module, error) {
	return fsdp2.NewLayer("Linear", fsdp2.LayerOptions{"in_features": in, "out_features": out}, nil)
}

func TestLayersAreAModuleThatTrains(t *testing.T) {
	defer noHandles(t)
	mustOnRanks(t, 2, func(mesh *fsdp2.Mesh, rank int) error {
		up, err := newLinear(4, 16)
		if err != nil {
			return err
		}
		act, err := fsdp2.NewLayer("Tanh", nil, nil)
		if err != nil {
			return err
		}
		down, err := newLinear(16, 6)
		if err != nil {
			return err
		}
		chain, err := newChain(up, act, down)
		if err != nil {
			return err
		}
		whole, err := fsdp2.NewCustomModule("Whole", &fsdp2.ModuleOptions{Seed: 3},
			func(call *fsdp2.ForwardCall, inputs []*fsdp2.Tensor) ([]*fsdp2.Tensor, error) {
				off := chain.Forward(inputs[0]).Sub(inputs[1])
				return []*fsdp2.Tensor{off.Mul(off).Mean()}, nil
			})
		if err != nil {
			return err
		}
		if err := whole.AddChild("chain", chain); err != nil {
			return err
		}
		r, err := newRunOf(mesh, whole, "Linear")
		if err != nil {
			return err
		}
		defer r.Close()
		found, err := names(whole)
		if err != nil || fmt.Sprint(found) !=
			"[chain.0.weight[16 4] chain.0.bias[16] chain.2.weight[6 16] chain.2.bias[6]]" {
			return fmt.Errorf("%v, %v", found, err)
		}
		losses, err := r.steps(5)
		if err == nil && losses[4] > losses[0]-0.1 {
			err = fmt.Errorf("the loss does not fall: %v", losses)
		}
		return err
	})
}

// At once with the last owner, however deep they are.
func TestChildrenEndWithTheirLayer(t *testing.T) {
	noHandles(t)
	linear, err := newLinear(4, 4)
	must(t, err)
	inner, err := newChain(linear)
	must(t, err)
	outer, err := newChain(inner)
	must(t, err)
	second, err := outer.Duplicate()
	must(t, err)
	for _, last := range []struct {
		owner *fsdp2.Module
		left  int
	}{{outer, 3}, {inner, 3}, {outer, 3}, {second, 0}} {
		must(t, last.owner.Close())
		if live := fsdp2.LiveHandles(); live != last.left {
			t.Errorf("expected %d live handles, found %d", last.left, live)
		}
	}
	linear, err = newLinear(4, 4)
	must(t, err)
	_, err = newChain(linear)
	must(t, err)
	noHandles(t) // by the collector
}
