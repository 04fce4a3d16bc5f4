"""Exports a PyTorch model to a .pt2 file, which fsdp2_module_from_exported makes a module of.

    python export_model.py MODEL OUT.pt2 [--no-weights] [--dtype bfloat16] [--max-seq N]

MODEL: a transformers causal language model, by name or folder. The program takes (tokens, labels) and gives the mean
cross-entropy, as the models that libfsdp2 has itself: labels[b][s] is the token that should follow tokens[b][s], and -100 is
left out. From Python, for a module of any kind: export_module(). Tested with torch 2.11 and transformers 4.57.
"""

import argparse
import contextlib
import json
import types

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import Dim, export, save

HIGHER_ORDER = {"wrap_with_set_grad_enabled", "wrap_with_autocast"}
SPARSE_BLOCKS = {"MixtralSparseMoeBlock", "Qwen3MoeSparseMoeBlock"}


@contextlib.contextmanager
def shapes_only():
    """Modules made inside have parameters without memory; buffers keep their values."""
    mode, register = FakeTensorMode(allow_non_fake_inputs=True), torch.nn.Module.register_parameter

    def register_fake(module, name, parameter):
        if parameter is not None and not isinstance(parameter, FakeTensor):
            parameter = torch.nn.Parameter(
                mode.from_tensor(parameter.detach()), parameter.requires_grad
            )
        register(module, name, parameter)

    torch.nn.Module.register_parameter = register_fake
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


def tied_names(model):
    """Names of each parameter that has more than one."""
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [n for n in names.values() if len(n) > 1]


def gradients(module, inputs):
    """Loss and gradients of one step, by name; the random numbers are the same each time."""
    torch.manual_seed(0)
    parameters = dict(module.named_parameters())
    loss = torch.utils._pytree.tree_leaves(module(*inputs))[0]
    values = torch.autograd.grad(
        loss, [p for p in parameters.values() if p.requires_grad], allow_unused=True
    )
    names = [n for n, p in parameters.items() if p.requires_grad]
    return loss.detach(), dict(zip(names, values))


def drop_copies_onto_themselves(program):
    """`self.count += 1` ends as a copy of the buffer onto itself, after which autograd refuses what it has kept of it."""
    for node in list(program.graph.nodes):
        if node.target is not torch.ops.aten.copy_.default:
            continue
        buffer, update = node.args[:2]
        schema = getattr(update.target, "_schema", None)
        if schema is not None and schema.name.endswith("_") and update.args[0] is buffer:
            node.replace_all_uses_with(buffer)
            program.graph.erase_node(node)
    program.graph_module.recompile()


def check_gradients(model, program, inputs):
    """What is no operator (autograd.Function, hooks on tensors) gets lost without a message."""
    state = {n: b.detach().clone() for n, b in model.named_buffers()}
    wanted_loss, wanted = gradients(model, inputs)
    for name, value in state.items():
        model.get_buffer(name).copy_(value)
    loss, found = gradients(program.module(), inputs)
    for name, value in {**wanted, "loss": wanted_loss}.items():
        other = loss if name == "loss" else found.get(name)
        if (value is None) != (other is None) or (
            value is not None and not torch.allclose(value, other, rtol=1e-3, atol=1e-5)
        ):
            raise ValueError(f"the exported program computes something else than the model: {name}")


def export_module(model, inputs, path, dynamic_shapes=None, check=True):
    """Writes model to path. Its first output is the loss. A model made in shapes_only() gives a
    file without parameters.

    inputs: example tensors, no two the same object, each dynamic size at least 2 and no two sizes
    equal by chance. The model's train or eval mode is fixed in the file.
    """
    tensors = [id(t) for t in inputs if isinstance(t, torch.Tensor)]
    if len(set(tensors)) != len(tensors):
        raise ValueError("two example inputs are the same tensor: they would become one input")
    fake = next((p for p in model.parameters() if isinstance(p, FakeTensor)), None)
    if fake is not None:
        inputs = [
            fake.fake_mode.from_tensor(t) if isinstance(t, torch.Tensor) else t for t in inputs
        ]
    program = export(
        model,
        tuple(inputs),
        dynamic_shapes=dynamic_shapes,
        strict=False,
        prefer_deferred_runtime_asserts_over_guards=True,
    )
    drop_copies_onto_themselves(program)
    for graph in (m.graph for m in program.graph_module.modules() if hasattr(m, "graph")):
        for node in graph.nodes:
            if node.op != "call_function":
                continue
            if isinstance(node.target, torch._ops.HigherOrderOperator):
                if node.target.name() not in HIGHER_ORDER:
                    raise ValueError(f"{node.target.name()} is not supported: {node.stack_trace}")
            elif "_functorch" in getattr(node.target, "__module__", ""):
                raise ValueError(f"torch.vmap is not supported: {node.stack_trace}")
    if check and fake is None:
        check_gradients(model, program, inputs)
    about = {"ties": tied_names(model), "training": model.training, "weights": fake is None}
    save(program, path, extra_files={"fsdp2.json": json.dumps(about)})


def run_all_experts(self, hidden_states):
    """A sparse block's forward that asks all experts, some for no token: export cannot follow transformers' loop over those that
    are picked. An expert without tokens gets a gradient of zeros instead of none; all else is the same."""
    tokens = hidden_states.view(-1, hidden_states.shape[-1])
    logits = self.gate(tokens)
    weights, picked = torch.topk(logits.float().softmax(-1), self.top_k, dim=-1)
    if getattr(self, "norm_topk_prob", True):
        weights = weights / weights.sum(-1, keepdim=True)
    picks = torch.nn.functional.one_hot(picked, self.num_experts).permute(2, 1, 0)
    out = torch.zeros_like(tokens)
    for number, expert in enumerate(self.experts):
        place, token = torch.where(picks[number])
        part = expert(tokens[token]) * weights.to(tokens.dtype)[token, place, None]
        out = out.index_add(0, token, part)
    return out.view(hidden_states.shape), logits


def causal_lm(name, dtype=torch.float32, weights=True):
    """A transformers causal LM whose forward(input_ids, labels) returns the loss alone. It does not shift the labels."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.integrations.executorch import sdpa_mask_without_vmap
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    ALL_MASK_ATTENTION_FUNCTIONS.register("sdpa", sdpa_mask_without_vmap)
    options = {"dtype": torch.float32, "attn_implementation": "sdpa"}
    if weights:
        model = AutoModelForCausalLM.from_pretrained(name, **options)
    else:
        with shapes_only():
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name), **options)
    for parameter in model.parameters():  # not the buffers: rotary frequencies stay float32
        parameter.data = parameter.data.to(dtype)

    def forward(self, input_ids, labels):
        logits = type(self).forward(self, input_ids=input_ids, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())

    model.forward = types.MethodType(forward, model)  # no wrapper: parameters keep their names
    for module in model.modules():
        if type(module).__name__ in SPARSE_BLOCKS:
            module.forward = types.MethodType(run_all_experts, module)
    return model.train()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument(
        "--no-weights", action="store_true", help="shapes and buffers only; reads the config alone"
    )
    parser.add_argument("--dtype", default="float32", help="of the parameters in the program")
    parser.add_argument("--max-seq", type=int, help="default: the model's max_position_embeddings")
    options = parser.parse_args()
    model = causal_lm(options.model, getattr(torch, options.dtype), not options.no_weights)
    config = model.config.get_text_config()
    longest = options.max_seq or getattr(config, "max_position_embeddings", 4096)
    sizes = {0: Dim("batch", min=1, max=65536), 1: Dim("seq", min=2, max=longest)}
    tokens = [torch.randint(0, config.vocab_size, (2, 11)) for _ in range(2)]
    export_module(model, tokens, options.out, (sizes, sizes))


if __name__ == "__main__":
    main()
