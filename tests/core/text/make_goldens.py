"""Makes small tokenizers, and records what the Python libraries tokenizers and transformers make of texts and chats with them.

  $(tests/parity/python_environment.sh) tests/core/text/make_goldens.py

They lie in golden/<name>: tokenizer.json and tokenizer_config.json as a model's directory has them, and expected.json.
"""

import json
import pathlib
import shutil
import tempfile

import jinja2
import tokenizers
import transformers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

GOLDEN = pathlib.Path(__file__).parent / "golden"

CORPUS = [
    "The quick brown fox jumps over the lazy dog; it doesn't care, and they're off at 12:30 on day 2026.",
    "In the beginning was the word, and the word was with the tokenizer, and tokens were made by it.",
    "Größere Städte haben schöne Straßen. Le garçon à l'école mange une pêche.",
    "def f(x):\n    return x + 1\n\nprint(f(41))\n",
    "日本語のテキスト и русский текст, and emoji 🙂🚀.",
] * 8

TEXTS = [
    "",
    " ",
    "The quick brown fox",
    "  leading, trailing  \n\n\n and\ttabs \r\n",
    "they're it'll I'M 1234567 3.14",
    "Größe, garçon 日本語 русский 🙂 e\u0301 \u00a0 \u2028 ﬁ",
    "a<|end|>b <|end|>",
    "def f(x):\n        return x\n",
    "x" * 300 + " " * 40,
    "\u0000\u0001 and \u007f",
]

# They have the shapes of models' own: with a beginning of its own, with a check, and with loops over all messages.
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
BRACKETS = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim + '\\n\\n' %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system = '' %}
    {%- set rest = messages %}
{%- endif %}
{%- for message in rest %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {%- if loop.first %}{% set content = system + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' + content.strip() + ' [/INST]' }}
    {%- else %}
        {{- ' ' + content.strip() + eos_token }}
    {%- endif %}
{%- endfor %}
"""

CHATS = [
    [
        {"role": "user", "content": "What is two and two?"},
        {"role": "assistant", "content": "Four."},
    ],
    [
        {"role": "system", "content": " Be brief.\n"},
        {"role": "user", "content": "Größe?"},
        {"role": "assistant", "content": "Length."},
        {"role": "user", "content": "And the fox?"},
        {"role": "assistant", "content": "It jumps."},
    ],
    [{"role": "assistant", "content": "Unasked."}],
]


# What templates of models' own ask for beside the messages, and how they write them as JSON.
TEMPLATES = [
    (
        "{% if tools is none and documents is none %}none{% endif %}{% if tools is defined %}, defined{% endif %}"
        "{% if tools is iterable %}, iterable{% endif %}"
    ),
    "{{ messages | tojson }}",
    "{% for m in messages %}{{ m | tojson(indent=2) }}{{ m.content | tojson(ensure_ascii=true) }}{% endfor %}",
    (
        "{{ {'b': [1, 2.5, none, true], 'a': {}} | tojson(sort_keys=true) }}{{ [] | tojson(indent=4) }}"
        "{{ messages | tojson(separators=(',', ':')) }}"
    ),
    "{% for key, value in messages[0].items() %}{{ key }}={{ value }};{% endfor %}",
    (
        "{% for m in messages %}\n{%- if m.role == 'assistant' %}\n  {%- generation -%} a {{ m.content }} {% endgeneration %}\n"
        "{% generation %}{% set x = 1 %} b{% endgeneration %}{{ x is defined }}\n{%- endif %}\n{%- endfor %}\n"
    ),
]
TEMPLATES_CHAT = [
    {"role": "user", "content": '<b>"it\'s" & more</b>\n\té🙂\u007f\u0001 a\\b/c'},
    {"role": "assistant", "content": ""},
]

# Classes of which some put tokens around a text whatever tokenizer.json says, and tokens by role in two files.
CLASSES = [
    ({"tokenizer_class": "LlamaTokenizer"}, {}),
    ({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": False}, {}),
    ({"tokenizer_class": "LlamaTokenizer", "add_eos_token": True}, {}),
    ({"tokenizer_class": "LlamaTokenizer", "add_bos_token": None, "add_eos_token": 1}, {}),
    (
        {
            "tokenizer_class": "CodeLlamaTokenizer",
            "add_bos_token": False,
            "add_eos_token": True,
            "eos_token": "<unk>",
        },
        {},
    ),
    ({"tokenizer_class": "GemmaTokenizer", "add_eos_token": True}, {}),
    ({"tokenizer_class": "GPTNeoXTokenizerFast"}, {}),
    ({"tokenizer_class": "GPTNeoXTokenizer", "add_bos_token": True, "add_eos_token": True}, {}),
    ({"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False}, {}),
    ({"tokenizer_class": "PreTrainedTokenizerFast"}, {"eos_token": "<unk>"}),
    ({"tokenizer_class": "LlamaTokenizer"}, {"bos_token": {"content": "<unk>"}}),
    (
        {"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": {}},
        {"bos_token": "<unk>", "eos_token": "<unk>"},
    ),
]

# What config.json says where tokenizer_config.json names no class, and what is then beside it.
MODELS = [
    *(
        {"model_type": name}
        for name in ("llama", "ministral", "mistral", "mixtral", "phi3", "gemma", "gemma3_text")
    ),
    {"model_type": "qwen2"},
    {"model_type": "gpt2"},
    {"model_type": "gpt_neox"},
    {"model_type": "qwen3", "tokenizer_class": "LlamaTokenizer"},
    {"model_type": "llama", "tokenizer_class": "PreTrainedTokenizerFast"},
    {"model_type": "llama", "tokenizer_class": None},
]

# Whether bytes are cut after a space before the text: the file's, and what is beside it.
PREFIX_SPACES = [
    (adds, config)
    for adds in (True, False)
    for config in (
        {},
        {"add_prefix_space": True},
        {"add_prefix_space": False},
        {"add_prefix_space": None},
        {"tokenizer_class": "LlamaTokenizer", "add_bos_token": False},
        {"tokenizer_class": "CodeLlamaTokenizer", "add_bos_token": False},
        {"tokenizer_class": "GPT2Tokenizer"},
    )
]


def byte_level():
    """As Qwen and Llama 3 have it: byte-level BPE after cuts by a regular expression with look-ahead."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    cut = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(cut), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|end|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=380, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer, {"eos_token": "<|im_end|>", "chat_template": CHATML}


def bpe():
    """As Llama 2 has it: BPE with spaces as letters and unknown letters as bytes, a beginning, and a template of its own."""
    tokenizer = tokenizers.Tokenizer(
        models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=370, special_tokens=special, limit_alphabet=60, show_progress=False
    )
    tokenizer.train_from_iterator([line.split("\n")[0] for line in CORPUS], trainer)
    # Bytes are ordinary tokens, which the trainer cannot make.
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [
        token for token in data["added_tokens"] if not token["content"].startswith("<0x")
    ]
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A",
        pair="<s> $A <s> $B",
        special_tokens=[("<s>", tokenizer.token_to_id("<s>"))],
    )
    tokens = {
        f"{role}_token": {"__type": "AddedToken", "content": token}
        for role, token in (("bos", "<s>"), ("eos", "</s>"))
    }
    return tokenizer, {**tokens, "chat_template": BRACKETS}


def unigram():
    """As T5 has it: Unigram on words, with an end after each text. No chat template."""
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=180,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    # What a model's file may have, and training leaves out.
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=16)
    return tokenizer, {"eos_token": "</s>"}


def begins_in_bytes(text, encoding):
    return [len(text[:begin].encode()) for begin, _ in encoding.offsets]


def expected_texts(tokenizer):
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for text in TEXTS:
        plain = tokenizer.encode(text, add_special_tokens=False)
        yield {
            "text": text,
            "ids": plain.ids,
            "begins": begins_in_bytes(text, plain),
            "surrounded": tokenizer.encode(text).ids,
            "decoded": tokenizer.decode(plain.ids),
            "decoded_with_special": tokenizer.decode(plain.ids, skip_special_tokens=False),
        }


def render(tokenizer, chat, opens_answer):
    try:
        return tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=opens_answer
        )
    except jinja2.TemplateError:
        return None


def expected_chats(directory):
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
    for chat in CHATS if tokenizer.chat_template else []:
        yield {
            "messages": chat,
            "text": render(tokenizer, chat, False),
            "opened": render(tokenizer, chat, True),
        }


def expected_templates(directory):
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
    for template in TEMPLATES:
        text = tokenizer.apply_chat_template(
            TEMPLATES_CHAT, chat_template=template, tokenize=False, add_generation_prompt=False
        )
        yield {"template": template, "messages": TEMPLATES_CHAT, "text": text}


def expected_classes(directory):
    """Only of a tokenizer that has <s>, </s> and <unk>. With a model its tokenizer.json puts nothing around a text."""
    usual = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<unk>"}
    bare = json.loads((directory / "tokenizer.json").read_text()) | {"post_processor": None}
    for config, older, *model in CLASSES + [({}, {}, model) for model in MODELS]:
        with tempfile.TemporaryDirectory() as scratch:
            own = pathlib.Path(scratch)
            shutil.copy(directory / "tokenizer.json", own)
            whole = usual | config
            (own / "tokenizer_config.json").write_text(json.dumps(whole))
            if older:
                (own / "special_tokens_map.json").write_text(json.dumps(older))
            if model:
                (own / "tokenizer.json").write_text(json.dumps(bare))
                (own / "config.json").write_text(json.dumps(model[0]))
            tokenizer = transformers.AutoTokenizer.from_pretrained(own)
            yield {
                "config": whole,
                "older": older,
                **({"model": model[0]} if model else {}),
                "end_token": tokenizer.eos_token_id,
                "ids": tokenizer("The fox").input_ids,
            }


def expected_prefix_spaces(directory):
    end = "<|end|>"
    usual = {f"{role}_token": end for role in ("bos", "eos", "unk", "pad")}
    for adds, config in PREFIX_SPACES:
        cut = {
            "type": "ByteLevel",
            "add_prefix_space": adds,
            "trim_offsets": True,
            "use_regex": True,
        }
        data = json.loads((directory / "tokenizer.json").read_text()) | {"pre_tokenizer": cut}
        with tempfile.TemporaryDirectory() as scratch:
            own = pathlib.Path(scratch)
            (own / "tokenizer.json").write_text(json.dumps(data))
            whole = usual | {"tokenizer_class": "PreTrainedTokenizerFast"} | config
            (own / "tokenizer_config.json").write_text(json.dumps(whole))
            tokenizer = transformers.AutoTokenizer.from_pretrained(own)
            yield {"adds": adds, "config": whole, "ids": tokenizer("The fox").input_ids}


def main():
    for make in (byte_level, bpe, unigram):
        directory = GOLDEN / make.__name__
        directory.mkdir(parents=True, exist_ok=True)
        tokenizer, config = make()
        tokenizer.save(str(directory / "tokenizer.json"), pretty=False)
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        (directory / "tokenizer_config.json").write_text(
            json.dumps(config, indent=1, ensure_ascii=False) + "\n"
        )
        eos = config["eos_token"]
        expected = {
            "made_with": f"tokenizers {tokenizers.__version__}, transformers {transformers.__version__}",
            "vocab_size": max(tokenizer.get_vocab().values()) + 1,
            "end_token": tokenizer.token_to_id(eos if isinstance(eos, str) else eos["content"]),
            "texts": list(expected_texts(tokenizer)),
            "chats": list(expected_chats(directory)),
            "templates": list(expected_templates(directory)) if make is byte_level else [],
            "classes": list(expected_classes(directory)) if make is bpe else [],
            "prefix_spaces": list(expected_prefix_spaces(directory)) if make is byte_level else [],
        }
        (directory / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
