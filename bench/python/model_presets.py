"""The models that are made here: config.json by name."""

from __future__ import annotations

from typing import Any

ConfigDict = dict[str, Any]


def llama(**overrides: Any) -> ConfigDict:
    """config.json of a Llama model, with the keys that published Llama configs carry."""
    base: ConfigDict = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "max_position_embeddings": 2048,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "use_cache": False,
    }
    return base | overrides


def qwen2(**overrides: Any) -> ConfigDict:
    """config.json of a Qwen2 or Qwen2.5 model (the two share one architecture)."""
    base: ConfigDict = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "max_position_embeddings": 4096,
        "max_window_layers": 2,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "sliding_window": 4096,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "use_cache": False,
    }
    return base | overrides


def qwen3(**overrides: Any) -> ConfigDict:
    """config.json of a dense Qwen3 model."""
    base: ConfigDict = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "max_position_embeddings": 4096,
        "max_window_layers": 2,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "use_cache": False,
    }
    return base | overrides


def qwen3_moe(**overrides: Any) -> ConfigDict:
    """config.json of a Qwen3 mixture-of-experts model."""
    base = qwen3(
        architectures=["Qwen3MoeForCausalLM"],
        model_type="qwen3_moe",
        decoder_sparse_step=1,
        mlp_only_layers=[],
        norm_topk_prob=True,
        output_router_logits=False,
        router_aux_loss_coef=0.001,
    )
    return base | overrides


def mixtral(**overrides: Any) -> ConfigDict:
    """config.json of a Mixtral model."""
    base: ConfigDict = {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "max_position_embeddings": 4096,
        "output_router_logits": False,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0,
        "router_aux_loss_coef": 0.02,
        "router_jitter_noise": 0.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_cache": False,
    }
    return base | overrides


def gemma(**overrides: Any) -> ConfigDict:
    """config.json of a Gemma model."""
    base: ConfigDict = {
        "architectures": ["GemmaForCausalLM"],
        "model_type": "gemma",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "hidden_act": "gelu_pytorch_tanh",
        "initializer_range": 0.02,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "use_cache": False,
    }
    return base | overrides


def gemma2(**overrides: Any) -> ConfigDict:
    """config.json of a Gemma 2 model. Only eager attention of transformers caps its scores."""
    base: ConfigDict = {
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "hidden_activation": "gelu_pytorch_tanh",
        "initializer_range": 0.02,
        "max_position_embeddings": 4096,
        "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
        "use_cache": False,
    }
    return base | overrides


def gemma3(**overrides: Any) -> ConfigDict:
    """config.json of a Gemma 3 model without its encoder of images."""
    base: ConfigDict = {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "hidden_activation": "gelu_pytorch_tanh",
        "initializer_range": 0.02,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_local_base_freq": 10000.0,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": True,
        "use_cache": False,
    }
    return base | overrides


def phi3(**overrides: Any) -> ConfigDict:
    """config.json of a Phi-3 or Phi-4 mini model."""
    base: ConfigDict = {
        "architectures": ["Phi3ForCausalLM"],
        "model_type": "phi3",
        "attention_dropout": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "max_position_embeddings": 4096,
        "original_max_position_embeddings": 4096,
        "partial_rotary_factor": 1.0,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_cache": False,
    }
    return base | overrides


def gpt2(**overrides: Any) -> ConfigDict:
    """config.json of a GPT-2 model, without its dropout."""
    base: ConfigDict = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-5,
        "n_inner": None,
        "n_positions": 1024,
        "tie_word_embeddings": True,
        "use_cache": False,
    }
    return base | overrides


PRESETS: dict[str, ConfigDict] = {
    # ---- tiny: used by the golden files; every one stays below 2 MB in fp32
    "tiny-llama": llama(
        vocab_size=384, hidden_size=64, intermediate_size=176, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, head_dim=16,
    ),
    # The vocabulary (331) and the intermediate size (174) do not divide by 2 or 4 evenly.
    "tiny-llama-gqa-tied": llama(
        vocab_size=331, hidden_size=64, intermediate_size=174, num_hidden_layers=3,
        num_attention_heads=8, num_key_value_heads=2, head_dim=8,
        rope_theta=500000.0, tie_word_embeddings=True,
    ),
    "tiny-qwen2": qwen2(
        vocab_size=384, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
    ),
    "tiny-qwen2.5": qwen2(
        vocab_size=402, hidden_size=96, intermediate_size=200, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2,
    ),
    "tiny-qwen3": qwen3(
        vocab_size=384, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, tie_word_embeddings=True,
    ),
    # Six experts over four ranks: the router weight [6, 64] leaves the last rank an empty shard.
    "tiny-qwen3-moe": qwen3_moe(
        vocab_size=384, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        num_experts=6, num_experts_per_tok=2, moe_intermediate_size=48,
    ),
    "tiny-mixtral": mixtral(
        vocab_size=384, hidden_size=64, intermediate_size=56, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
    ),
    # Heads of 24 dims, which is not hidden_size / heads, and one for keys and values.
    "tiny-gemma": gemma(
        vocab_size=384, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=1, head_dim=24,
    ),
    # Caps so low that scores and logits meet them; the first layer slides.
    "tiny-gemma2": gemma2(
        vocab_size=384, hidden_size=64, intermediate_size=150, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=24, query_pre_attn_scalar=20,
        sliding_window=11, attn_logit_softcapping=2.0, final_logit_softcapping=4.0,
    ),
    # Two layers of a sliding window with a rope of their own around one that sees all.
    "tiny-gemma3": gemma3(
        vocab_size=331, hidden_size=64, intermediate_size=150, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=24, query_pre_attn_scalar=20,
        sliding_window=11, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    ),
    # Half of each head rotates; windows of 32 tokens take the long factors, those of 8 the short.
    "tiny-phi3": phi3(
        vocab_size=384, hidden_size=64, intermediate_size=86, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, partial_rotary_factor=0.5, sliding_window=20,
        max_position_embeddings=64, original_max_position_embeddings=16,
        rope_scaling={
            "type": "longrope",
            "short_factor": [1.0, 1.1, 1.3, 1.6],
            "long_factor": [1.5, 2.2, 3.1, 4.5],
        },
    ),
    "tiny-gpt2": gpt2(vocab_size=384, n_embd=64, n_layer=2, n_head=4, n_positions=64),
    # The vocabulary (331), the width (90) and the MLP's (174) do not divide by 4 evenly.
    "tiny-gpt2-untied": gpt2(
        vocab_size=331, n_embd=90, n_layer=2, n_head=3, n_positions=40, n_inner=174,
        activation_function="gelu", tie_word_embeddings=False,
    ),
    # ---- throughput
    # 200 units of 656 parameters each: nothing but what a unit costs the host.
    "small-units": llama(
        vocab_size=256, hidden_size=8, intermediate_size=16, num_hidden_layers=200,
        num_attention_heads=1, num_key_value_heads=1, head_dim=8,
    ),
    "gpt-90m": gpt2(vocab_size=50304, n_embd=640, n_layer=12, n_head=10),
    "gpt-300m": gpt2(vocab_size=50304, n_embd=1024, n_layer=20, n_head=16),
    "llama-10m": llama(
        vocab_size=8192, hidden_size=256, intermediate_size=704, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=4, head_dim=32,
    ),
    "llama-90m": llama(
        vocab_size=16384, hidden_size=768, intermediate_size=2048, num_hidden_layers=10,
        num_attention_heads=12, num_key_value_heads=4, head_dim=64,
    ),
    "llama-300m": llama(
        vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=21,
        num_attention_heads=16, num_key_value_heads=4, head_dim=64,
    ),
    "qwen3-moe-100m": qwen3_moe(
        vocab_size=16384, hidden_size=512, intermediate_size=1536, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=4, head_dim=64,
        num_experts=16, num_experts_per_tok=4, moe_intermediate_size=320,
    ),
    "qwen3-moe-8-experts": qwen3_moe(
        vocab_size=16384, hidden_size=512, intermediate_size=1536, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=4, head_dim=64,
        num_experts=8, num_experts_per_tok=2, moe_intermediate_size=768,
    ),
    # ---- the shapes of published models, random weights; for a GPU
    "gpt-124m": gpt2(vocab_size=50304, n_embd=768, n_layer=12, n_head=12),
    "qwen2.5-0.5b": qwen2(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
        num_attention_heads=14, num_key_value_heads=2, max_position_embeddings=32768,
        max_window_layers=21, sliding_window=32768, tie_word_embeddings=True,
    ),
    "qwen2.5-1.5b": qwen2(
        vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28,
        num_attention_heads=12, num_key_value_heads=2, max_position_embeddings=32768,
        max_window_layers=28, sliding_window=32768, tie_word_embeddings=True,
    ),
    "qwen2.5-3b": qwen2(
        vocab_size=151936, hidden_size=2048, intermediate_size=11008, num_hidden_layers=36,
        num_attention_heads=16, num_key_value_heads=2, max_position_embeddings=32768,
        max_window_layers=36, sliding_window=32768, tie_word_embeddings=True,
    ),
    "qwen2.5-7b": qwen2(
        vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28,
        num_attention_heads=28, num_key_value_heads=4, max_position_embeddings=32768,
        max_window_layers=28, sliding_window=32768,
    ),
    "qwen3-0.6b": qwen3(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128,
        max_position_embeddings=40960, max_window_layers=28, tie_word_embeddings=True,
    ),
    "llama-1b": llama(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=32, num_key_value_heads=8, head_dim=64, rope_theta=500000.0,
        max_position_embeddings=8192, tie_word_embeddings=True,
    ),
    "llama-8b": llama(
        vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, rope_theta=500000.0,
        max_position_embeddings=8192,
    ),
}  # fmt: skip
