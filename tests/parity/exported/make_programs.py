"""Makes the exported programs of this folder, and records how eager PyTorch trains them.

    python tests/parity/exported/make_programs.py [NAME...]    # torch 2.11, transformers 4.57; from the repository root

NAME.pt2 is what examples/python/export_model.py writes, without what only people read (stack traces) and the types of values
inside the program, which takes most of a file and which libfsdp2 does not look at. NAME.json has the batches and the losses.
"""

import io
import json
import os
import sys
import types
import zipfile

import torch
import torch.nn.functional as F
from torch.export import Dim

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "examples", "python"))
from export_model import causal_lm, export_module

STEPS = 10
SMALL = {
    "vocab_size": 23,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32,
}
ADAMW = {"lr": 3e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(width, width)

    def forward(self, x):
        left, right = self.up(x).chunk(2, dim=-1)
        return x + self.down(F.gelu(left).mul_(right.sigmoid()))


class PictureModel(torch.nn.Module):
    """A convolution, a tied weight, a module that runs twice, one that nobody calls, a region without gradients."""

    def __init__(self, width=8, words=11):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.words = torch.nn.Embedding(words, width)
        self.blocks = torch.nn.ModuleList([Block(width), Block(width)])
        self.norm = torch.nn.LayerNorm(width)
        self.gate = torch.nn.Linear(width, width, bias=False)  # its weight is used, it is not
        self.frozen = torch.nn.Parameter(torch.linspace(0.5, 1.5, width), requires_grad=False)
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)
        self.head = torch.nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, picture, words, labels):
        seen = self.conv(picture).flatten(2).mean(-1).unsqueeze(1)
        x = self.words(words) * self.frozen + seen
        for block in self.blocks:
            x = block(self.norm(x))
        with torch.no_grad():
            mean = x.mean(-1, keepdim=True) * self.scale
        x = F.linear(x - mean, self.gate.weight)
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def picture_model():
    sizes = {0: Dim("batch", min=1, max=64)}
    texts = {**sizes, 1: Dim("length", min=2, max=32)}

    def batch(n):
        words = torch.randint(0, 11, (n, 5))
        return [torch.randint(0, 8, (n, 3, 6, 6)) / 8, words, (words + 1) % 11]

    return PictureModel(), batch, (sizes, texts, texts)


def tokens(words, length):
    sizes = {0: Dim("batch", min=1, max=64), 1: Dim("seq", min=2, max=length)}

    def batch(n):
        ids = torch.randint(0, words, (n, 7))
        return [ids, ids.clone()]

    return batch, (sizes, sizes)


def causal(config):
    from transformers import AutoModelForCausalLM

    folder = os.path.join(os.environ.get("TMPDIR", "/tmp"), config.model_type)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return (causal_lm(folder), *tokens(config.vocab_size, 32))


def llama():
    from transformers import LlamaConfig

    return causal(
        LlamaConfig(**SMALL, intermediate_size=12, num_hidden_layers=1, tie_word_embeddings=True)
    )


def qwen3():
    from transformers import Qwen3Config

    return causal(Qwen3Config(**SMALL, intermediate_size=12, num_hidden_layers=1, head_dim=4))


def qwen3_moe():
    from transformers import Qwen3MoeConfig

    return causal(
        Qwen3MoeConfig(
            **SMALL,
            num_hidden_layers=1,
            head_dim=4,
            moe_intermediate_size=6,
            num_experts=4,
            num_experts_per_tok=2,
            norm_topk_prob=True,
        )
    )


def gpt2():
    from transformers import GPT2Config

    return causal(
        GPT2Config(
            vocab_size=23,
            n_embd=8,
            n_layer=1,
            n_head=2,
            n_positions=32,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


def with_loss(model):
    """Its forward takes an input and labels, and returns the loss alone."""

    def forward(self, given, labels):
        return type(self).forward(self, given, labels=labels).loss

    model.forward = types.MethodType(forward, model)
    return model.train()


def bert():
    """With dropout: one rank alone draws what eager draws."""
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(
        BertConfig(
            vocab_size=23,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=12,
            max_position_embeddings=32,
        )
    )
    return (with_loss(model), *tokens(23, 32))


def t5():
    """An encoder and a decoder, whose inputs are the labels, shifted in place."""
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=23,
            d_model=8,
            d_kv=4,
            d_ff=12,
            num_layers=1,
            num_heads=2,
            relative_attention_num_buckets=4,
            relative_attention_max_distance=8,
            dropout_rate=0.0,
            decoder_start_token_id=0,
            use_cache=False,
        )
    )
    batch = Dim("batch", min=1, max=64)
    sizes = [{0: batch, 1: Dim(name, min=3, max=32)} for name in ("source", "target")]
    return (
        with_loss(model),
        lambda n: [torch.randint(2, 23, (n, 7)), torch.randint(2, 23, (n, 5))],
        tuple(sizes),
    )


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(
        ViTConfig(
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=12,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            image_size=8,
            patch_size=4,
            num_labels=5,
        )
    )
    sizes = {0: Dim("batch", min=1, max=64)}
    return (
        with_loss(model),
        lambda n: [torch.randint(0, 8, (n, 3, 8, 8)) / 8, torch.randint(0, 5, (n,))],
        (sizes, sizes),
    )


def train(model, batches, ranks):
    """Losses of data-parallel training, each rank with its part of the batch."""
    state = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(7)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], **ADAMW)
    losses, norms = [], []
    for batch in batches:
        parts = [[t.chunk(ranks)[rank] for t in batch] for rank in range(ranks)]
        total = sum(model(*part) for part in parts) / ranks
        total.backward()
        losses.append(total.item())
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        norms.append(torch.stack([g.double().norm() for g in grads]).norm().item())
        optimizer.step()
        optimizer.zero_grad()
    model.load_state_dict(state)
    return {"loss": losses, "grad_norm": norms}


def shortened(program):
    """The program without what libfsdp2 does not read."""
    inputs = {i["as_tensor"]["name"] for i in program["graph_module"]["graph"]["inputs"]}
    keys = {}

    def shorter(call):
        key, path, kind = call.split(",")
        return f"{keys.setdefault(key, len(keys))},{path},{kind.rsplit('.', 1)[-1]}"

    def visit(graph):
        for node in graph["nodes"]:
            stack = node["metadata"].get("nn_module_stack", "_empty_nn_module_stack")
            node["metadata"] = {}
            if not stack.startswith("_empty_nn_module_stack"):
                node["metadata"]["nn_module_stack"] = ";".join(
                    shorter(call) for call in stack.split(";")
                )
            node.pop("is_hop_single_tensor_return", None)
            node.pop("name", None)
            if node["target"].endswith("_assert_tensor_metadata.default"):
                node["inputs"] = [i for i in node["inputs"] if i["name"] in ("a", "dtype")]
            for given in node["inputs"]:
                given.pop("kind", None)
                if "as_graph" in given["arg"]:
                    visit(given["arg"]["as_graph"]["graph"])
        graph["tensor_values"] = {k: v for k, v in graph["tensor_values"].items() if k in inputs}
        for name in ("sym_int_values", "sym_bool_values", "sym_float_values", "custom_obj_values"):
            graph.pop(name, None)

    visit(program["graph_module"]["graph"])
    program["guards_code"] = []
    for call in program["graph_module"]["module_call_graph"]:
        call["signature"] = None
    return program


def bound_names(program):
    """Names of the graph's inputs that stand for parameters and buffers, and shorter ones."""
    names = [i["as_tensor"]["name"] for i in program["graph_module"]["graph"]["inputs"]]
    return [(name, f"in{i}") for i, name in enumerate(names) if name.startswith(("p_", "b_"))]


def shorten(path):
    """Writes the archive anew."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            if name.endswith(".json"):
                value = json.loads(data)
                is_program = name.endswith("models/model.json")
                data = json.dumps(shortened(value) if is_program else value, separators=(",", ":"))
                for bound in bound_names(value) if is_program else []:
                    data = data.replace(f'"{bound[0]}"', f'"{bound[1]}"')
            if "/sample_inputs/" not in name:
                archive.writestr(zipfile.ZipInfo("p/" + name.split("/", 1)[1]), data)
    with open(path, "wb") as file:
        file.write(out.getvalue())


WORLDS = (1, 2, 4)
MODELS = (picture_model, llama, gpt2, bert, qwen3, qwen3_moe, t5, vit)


def main(names):
    for make in MODELS:
        if names and make.__name__ not in names:
            continue
        torch.manual_seed(0)
        model, make_batch, shapes = make()
        path = os.path.join(HERE, make.__name__)
        export_module(model, make_batch(3), path + ".pt2", shapes)
        shorten(path + ".pt2")
        batches = [make_batch(4) for _ in range(STEPS)]
        for module in list(model.modules())[1:]:  # trained as transformers has it
            module.__dict__.pop("forward", None)
        golden = {
            "batches": [
                [{"shape": list(t.shape), "values": t.flatten().tolist()} for t in batch]
                for batch in batches
            ],
            "runs": {str(n): train(model, batches, n) for n in WORLDS},
            "parameters": [n for n, _ in model.named_parameters()],
        }
        with open(path + ".json", "w", encoding="utf-8") as file:
            json.dump(golden, file, separators=(",", ":"))
            file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
