#!/usr/bin/env python3
"""Models of other libraries with random weights, as `transformers` writes them, and the logits that it computes.

Usage: make_foreign.py [--check]. Writes <name>/config.json, <name>/model.safetensors (or shards with their index) and
<name>/logits.safetensors to this folder; --check compares the files instead. Needs torch and transformers; without
them --check is skipped (exit status 77).

logits.safetensors holds `tokens` i32 [N, T], `logits` f64 [N, T, V], computed in f64 from the weights of the file, and
`error_f32`, f64 [1]: the largest error of the same computed in f32, of several runs with weights moved by a quarter of
f32's unit, since a single run may have a small one by chance.
"""
import json
import pathlib
import shutil
import sys
import tempfile

try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77 if "--check" in sys.argv else 1)

HERE = pathlib.Path(__file__).resolve().parent
SMALL = 40  # symbols; models with 264 are for commands that need a tokenizer of all bytes
GPT2 = (transformers.GPT2LMHeadModel, transformers.GPT2Config)
LLAMA = (transformers.LlamaForCausalLM, transformers.LlamaConfig)
NEOX = (transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig)
WHICH = dict(bos_token_id=0, eos_token_id=0)


def llama(**settings):
    return dict(vocab_size=SMALL, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                max_position_embeddings=64, **WHICH) | settings


def neox(**settings):
    return dict(vocab_size=SMALL, hidden_size=16, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2,
                max_position_embeddings=64, **WHICH) | settings


# Name -> family, configuration, type of the weights, bytes of a shard. The seed is the place here: new ones go last.
MODELS = {
    "gpt2": (GPT2, dict(vocab_size=264, n_positions=32, n_embd=8, n_layer=2, n_head=2, **WHICH), torch.float32, None),
    "gpt2-wide": (GPT2, dict(vocab_size=SMALL, n_positions=16, n_embd=8, n_layer=2, n_head=4, n_inner=20,
                             layer_norm_epsilon=1e-2, tie_word_embeddings=False, **WHICH), torch.float32, None),
    "llama": (LLAMA, llama(vocab_size=264, hidden_size=8, num_hidden_layers=2), torch.float32, None),
    "llama-grouped": (LLAMA, llama(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                   rms_norm_eps=1e-3, rope_parameters=dict(rope_type="linear", rope_theta=500.0,
                                                                           factor=4.0)), torch.float32, None),
    "llama-shards": (LLAMA, llama(num_hidden_layers=2, head_dim=12, tie_word_embeddings=True, rope_parameters=dict(
        rope_type="llama3", rope_theta=1000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=16)), torch.bfloat16, 6000),
    "llama-biased": (LLAMA, llama(attention_bias=True, mlp_bias=True, rope_parameters=dict(
        rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16)), torch.float16, None),
    "neox": (NEOX, neox(vocab_size=264, hidden_size=8, num_hidden_layers=2, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)), torch.float32, None),
    "neox-sequential": (NEOX, neox(num_hidden_layers=2, use_parallel_residual=False, hidden_act="gelu_new",
                                   layer_norm_eps=1e-3, rope_parameters=dict(
                                       rope_type="default", rope_theta=100.0, partial_rotary_factor=0.3)),
                        torch.float16, None),
}


def random_weights(model, seed):
    """Weights far from their usual small start, so that every part of the model shows in the logits."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        norm = parameter.dim() == 1 and name.endswith("weight")
        scale = 0.2 if parameter.dim() == 1 else 1.5 / parameter.shape[-1] ** 0.5
        parameter.data = values * scale + (1 if norm else 0)


def logits_of(model, tokens, dtype):
    with torch.no_grad():
        return model.to(dtype)(tokens).logits.double()


def largest_error(model, tokens, seed):
    largest = torch.zeros(1, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    start = {name: parameter.data.clone() for name, parameter in model.named_parameters()}
    for run in range(8):
        moved = {}
        for name, values in start.items():
            noise = 3e-8 * torch.randn(values.shape, generator=generator, dtype=torch.float64)
            moved[name] = (values * (1 + noise)).float() if run > 0 else values
        computed = []
        for dtype in [torch.float32, torch.float64]:
            for name, parameter in model.to(dtype).named_parameters():
                parameter.data = moved[name].to(dtype)
            computed.append(logits_of(model, tokens, dtype))
        largest = torch.maximum(largest, (computed[0] - computed[1]).abs().max())
    for name, parameter in model.to(torch.float32).named_parameters():
        parameter.data = start[name]
    return largest


def write(folder, name, seed):
    (model_class, config_class), settings, dtype, shard_bytes = MODELS[name]
    model = model_class._from_config(config_class(**settings), attn_implementation="eager").eval()
    random_weights(model, seed)
    model.to(dtype).config.dtype = dtype
    model.save_pretrained(folder, **({"max_shard_size": shard_bytes} if shard_bytes else {}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    reread = model_class.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    length = 14 if settings["vocab_size"] == SMALL else 7
    tokens = torch.randint(settings["vocab_size"], (1, length), generator=torch.Generator().manual_seed(seed + 100))
    error = largest_error(reread, tokens, seed)
    save_file({"tokens": tokens.int(), "logits": logits_of(reread, tokens, torch.float64), "error_f32": error},
              folder / "logits.safetensors")


def differences(stored, made):
    """What is not the same in two folders. transformers computes rotary angles in f32, whatever the type of the model, and
    cos and sin of them are rounded otherwise on another machine: so much, and without rotations the last bits, may differ.
    """
    turned = "gpt2" not in stored.name
    names = {path.name for path in stored.iterdir()} | {path.name for path in made.iterdir()}
    for name in sorted(names):
        if not (stored / name).is_file() or not (made / name).is_file():
            yield f"{name} is in one folder alone"
        elif name == "logits.safetensors":
            a, b = load_file(stored / name), load_file(made / name)
            if not torch.equal(a["tokens"], b["tokens"]):
                yield f"{name}: other tokens"
            elif (a["logits"] - b["logits"]).abs().max() > (1e-6 if turned else 1e-12) * a["logits"].abs().max():
                yield f"{name}: other logits"
        elif name.endswith(".safetensors"):
            a, b = load_file(stored / name), load_file(made / name)
            if a.keys() != b.keys() or any(not torch.equal(a[key], b[key]) for key in a):
                yield f"{name}: other weights"
        else:
            a, b = json.loads((stored / name).read_text()), json.loads((made / name).read_text())
            a.pop("transformers_version", None), b.pop("transformers_version", None)
            if a != b:
                yield f"{name}: other settings"


def main():
    check = "--check" in sys.argv
    failed = False
    for seed, name in enumerate(MODELS):
        with tempfile.TemporaryDirectory() as temporary:
            made = pathlib.Path(temporary) / name
            write(made, name, seed + 1)
            if check:
                for difference in differences(HERE / name, made):
                    print(f"{name}: {difference}")
                    failed = True
            else:
                shutil.rmtree(HERE / name, ignore_errors=True)
                shutil.copytree(made, HERE / name)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
