"""SmolLM2 as llama.cpp runs it (`llama`: interleaved rotary embedding, shared keys and values, SwiGLU), with a LoRA adapter."""

from dataclasses import dataclass

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from torch import nn

from . import export
from .model import Norm, masked


@dataclass
class Shape:
    vocabulary: int
    width: int
    layers: int
    heads: int
    shared: int  # heads of keys and values
    hidden: int
    context: int
    rope_base: float
    epsilon: float
    rank: int
    alpha: float


class Adapted(nn.Module):
    """A matrix that stays as it is, and the two small ones that are trained: y = Wx + alpha / rank · B(Ax)."""

    def __init__(self, inputs, outputs, shape):
        super().__init__()
        self.register_buffer("weight", torch.empty(outputs, inputs, dtype=torch.bfloat16))
        self.lora_a = nn.Parameter(torch.empty(shape.rank, inputs))
        self.lora_b = nn.Parameter(torch.zeros(outputs, shape.rank))
        self.scale = shape.alpha / shape.rank
        nn.init.kaiming_uniform_(self.lora_a, a=5**0.5)

    def forward(self, x):
        small = F.linear(x, self.lora_a.to(x.dtype))
        return F.linear(x, self.weight.to(x.dtype)) + F.linear(small, self.lora_b.to(x.dtype) * self.scale)


def rotate(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape, width = shape, shape.width
        few = width // shape.heads * shape.shared
        self.attn_norm = Norm(width, shape.epsilon)
        self.attn_q, self.attn_k = Adapted(width, width, shape), Adapted(width, few, shape)
        self.attn_v, self.attn_output = Adapted(width, few, shape), Adapted(width, width, shape)
        self.ffn_norm = Norm(width, shape.epsilon)
        self.ffn_gate, self.ffn_up = Adapted(width, shape.hidden, shape), Adapted(width, shape.hidden, shape)
        self.ffn_down = Adapted(shape.hidden, width, shape)

    def forward(self, x, cos, sin, mask):
        batch, length, width = x.shape
        y = self.attn_norm(x)
        head = width // self.shape.heads
        q, k, v = (
            made(y).view(batch, length, -1, head).transpose(1, 2) for made in (self.attn_q, self.attn_k, self.attn_v)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (each.repeat_interleave(self.shape.heads // self.shape.shared, 1) for each in (k, v))
        attended = masked(q, k, v, mask).transpose(1, 2).reshape(batch, length, width)
        x = x + self.attn_output(attended)
        y = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y))


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.register_buffer("token_embd", torch.empty(shape.vocabulary, shape.width, dtype=torch.bfloat16))
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.output_norm = Norm(shape.width, shape.epsilon)
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(".lora_" in name)

    def forward(self, ids, places, mask):
        """The last layer's states; `places` and `mask` as in `encode` and `train`."""
        head = self.shape.width // self.shape.heads
        frequency = self.shape.rope_base ** -(torch.arange(0, head, 2).float() / head)
        angle = places.float()[..., None] * frequency
        x = self.token_embd[ids]
        cos, sin = (table[:, None].to(x.dtype) for table in (angle.cos(), angle.sin()))
        for block in self.blk:
            x = block(x, cos, sin, mask)
        return self.output_norm(x)

    def logits(self, states):
        return F.linear(states, self.token_embd).float()


def read(path, rank, alpha):
    """The model of a GGUF with an adapter that changes nothing as yet, and its tokenizer."""
    reader = gguf.GGUFReader(str(path))
    value = lambda key: reader.get_field(key).contents()
    shared = value("llama.attention.head_count_kv")
    model = Model(Shape(shared=shared, rank=rank, alpha=alpha, **export.shape(value, "llama")))
    stored = export.weights(reader)
    stored["token_embd"] = stored.pop("token_embd.weight")
    missing, unexpected = model.load_state_dict(stored, strict=False)
    if unexpected or any(".lora_" not in name for name in missing):
        raise ValueError(f"{path} is no SmolLM2: {unexpected or missing}")
    return model, tokenizer(value)


def tokenizer(value):
    if value("tokenizer.ggml.pre") != "smollm":
        raise ValueError("the tokenizer is not SmolLM2's")
    tokens, types = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    normal = {token: place for place, token in enumerate(tokens)}
    made = Tokenizer(BPE(vocab=normal, merges=[tuple(merge.split(" ")) for merge in value("tokenizer.ggml.merges")]))
    made.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)])
    made.decoder = ByteLevelDecoder()
    control = [token for token, type in zip(tokens, types) if type == gguf.TokenType.CONTROL]
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return made


def write(model, path, metadata):
    """The adapter as llama.cpp reads it: two tensors for each matrix, in half precision."""
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, model.shape.alpha)
    for key, text in metadata.items():
        writer.add_string(key, text)
    for name, values in model.state_dict().items():
        matrix, _, part = name.rpartition(".")
        if part in ("lora_a", "lora_b"):
            writer.add_tensor(f"{matrix}.weight.{part}", values.float().numpy().astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
