package fsdp2

import (
	"encoding/json"

	"fsdp2/internal/capi"
)

// LayerOptions are the options of a layer by PyTorch's names: numbers, flags, texts, and slices where PyTorch takes a tuple. What is not
// there has PyTorch's default.
type LayerOptions map[string]any

// NewLayer makes a layer that the library has: a module of the class kind, by which ShardOptions.WrapKinds and CheckpointActivations
// choose it, whose forward is the library's. Options and parameters have PyTorch's names, meanings and defaults, and parameters begin as
// PyTorch's do, by the seed of the whole.
//
//	head, err := fsdp2.NewLayer("Linear", fsdp2.LayerOptions{"in_features": 32, "out_features": 384, "bias": false}, nil)
//
// A layer makes one tensor of one, unless the table says more.
//
//	Linear              in_features, out_features, bias
//	Embedding           num_embeddings, embedding_dim, padding_idx; takes indices (i64)
//	LayerNorm, RMSNorm  normalized_shape, eps, elementwise_affine; LayerNorm: bias
//	Conv1d, Conv2d      in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias; a number for all
//	                    dims, or a slice
//	Dropout             p. Rows of the batch are told apart by their values in the first input of the whole.
//	ReLU, SiLU, Tanh, GELU, Flatten   GELU: approximate; Flatten: start_dim, end_dim
//	MultiheadAttention  embed_dim, num_heads, bias, dropout (of attention weights, by the rules of Dropout), and what
//	                    PyTorch's has not: num_kv_heads (with fewer of them, in_proj_weight has fewer rows), is_causal,
//	                    and rope_theta, the base of a rotary embedding. Takes x [B,S,D], which attends to itself; where it
//	                    is not causal, a second input may be a mask, as Attention has it.
//	TransformerEncoderLayer   d_model, nhead, dim_feedforward, dropout, activation ("relu", "gelu"), layer_norm_eps,
//	                    norm_first, bias, and is_causal and a mask as MultiheadAttention; x is [B,S,D], as PyTorch's
//	                    batch_first has it
//	TransformerEncoder  the same options, and num_layers: so many of these layers, one after the other, in "layers"
//	MLP                 down_proj(act(up_proj(x))): hidden_size, intermediate_size, bias, hidden_act ("gelu", "gelu_new",
//	                    "relu", "silu")
//	GatedMLP            down_proj(act(gate_proj(x)) * up_proj(x)): the same, but "silu"
//	Sequential          runs the children that it is given (AddChild) in order
//	ModuleList          holds the children that it is given; does not run
//
// What is added to any other layer, its forward does not use. ErrInvalidArgument: a kind or an option that does not exist, with the nearest
// that does; an option that is missing or out of range.
func NewLayer(kind string, options LayerOptions, module *ModuleOptions) (*Module, error) {
	text, err := options.json()
	if err != nil {
		return nil, invalid("NewLayer", "%s: %v", kind, err)
	}
	var raw capi.Module
	var memory capi.Memory
	defer memory.Free()
	layer, err := madeModule(&raw, capi.ModuleCreateLayer(kind, text, module.raw(&memory), &raw))
	if err == nil {
		layer.share(&custom{kind: kind})
	}
	return layer, err
}

func (o LayerOptions) json() (string, error) {
	if o == nil {
		return "", nil
	}
	text, err := json.Marshal(o)
	return string(text), err
}
