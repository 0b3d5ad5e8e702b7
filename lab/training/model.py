"""The network: llama.cpp's `qwen3` (NeoX rotary embedding, normalised queries and keys, SwiGLU, tied embeddings)."""

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

# So many heads of a layer are seen by hints: the first two are told where to look, and in the first such layer the others, too.
SHOWN = 4


@dataclass
class Shape:
    vocabulary: int
    width: int = 192
    layers: int = 6
    heads: int = 6
    head: int = 32
    hidden: int = 512
    context: int = 2048
    rope_base: float = 10000.0
    epsilon: float = 1e-6

    # The layers that hints are for, in their order: the one that finds a question's words in the tools, the one after which a
    # word tells its tool, the one that links values with their labels and after which a word tells whether it is a value's, the
    # one that finds a value's label and after which the answer tells its tool, and the one that finds what is copied next.

    @property
    def finder(self):
        return self.layers // 3

    @property
    def teller(self):
        return self.layers // 2

    @property
    def valuer(self):
        return max(self.layers - 4, 0)

    @property
    def decider(self):
        return max(self.layers - 3, 0)

    @property
    def copier(self):
        return max(self.layers - 2, 0)


@dataclass
class Traces:
    """What hints are compared with: the states after three layers, and queries and keys of the shown heads of four."""

    told: torch.Tensor = None
    valued: torch.Tensor = None
    decided: torch.Tensor = None
    found: tuple = None
    linked: tuple = None
    labelled: tuple = None
    copied: tuple = None


class Norm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.epsilon)


def rotary(shape):
    frequency = shape.rope_base ** -(torch.arange(0, shape.head, 2).float() / shape.head)
    angle = torch.outer(torch.arange(shape.context).float(), frequency)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def masked(q, k, v, mask, size=128):
    """Attention under a causal `mask`, in strips of queries that leave out the keys after them.

    On a processor products written out take half as long as torch's own attention, there and back.
    """
    if q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, mask)
    k = (k * k.shape[-1] ** -0.5).mT.contiguous()
    strips = []
    for start in range(0, q.shape[2], size):
        end = start + size
        scores = q[:, :, start:end] @ k[:, :, :, :end]
        looks = (scores.float() + mask[:, :, start:end, :end]).softmax(-1)
        strips.append(looks.to(v.dtype) @ v[:, :, :end])
    return torch.cat(strips, dim=2)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        inner = shape.heads * shape.head
        self.shape = shape
        self.attn_norm = Norm(shape.width, shape.epsilon)
        self.attn_q = nn.Linear(shape.width, inner, bias=False)
        self.attn_k = nn.Linear(shape.width, inner, bias=False)
        self.attn_v = nn.Linear(shape.width, inner, bias=False)
        self.attn_q_norm = Norm(shape.head, shape.epsilon)
        self.attn_k_norm = Norm(shape.head, shape.epsilon)
        self.attn_output = nn.Linear(inner, shape.width, bias=False)
        self.ffn_norm = Norm(shape.width, shape.epsilon)
        self.ffn_gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.ffn_up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.ffn_down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x, cos, sin, mask=None, past=None):
        """The states, and the queries and keys of the shown heads."""
        batch, length, _ = x.shape
        y = self.attn_norm(x)
        split = (batch, length, self.shape.heads, self.shape.head)
        q = self.attn_q_norm(self.attn_q(y).view(split)).transpose(1, 2)
        k = self.attn_k_norm(self.attn_k(y).view(split)).transpose(1, 2)
        v = self.attn_v(y).view(split).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        shown = q[:, :SHOWN], k[:, :SHOWN]
        if past is not None:
            if past:
                k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
            past[:] = [k, v]
        if mask is None:
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        else:
            attended = masked(q, k, v, mask)
        x = x + self.attn_output(attended.transpose(1, 2).reshape(batch, length, -1))
        y = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y)), shown


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocabulary, shape.width)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.output_norm = Norm(shape.width, shape.epsilon)
        cos, sin = rotary(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        nn.init.normal_(self.token_embd.weight, std=0.02)
        for block in self.blk:
            for name, parameter in block.named_parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, std=shape.width**-0.5)
            # Each block starts as the identity, which lets the learning rate be high from the first step.
            nn.init.zeros_(block.attn_output.weight)
            nn.init.zeros_(block.ffn_down.weight)

    def hidden(self, ids, places=None, mask=None, past=None):
        """The last layer's states.

        `places` (batch × length) and `mask` (batch × 1 × length × length, added to the scores) are those of packed
        conversations; without them `ids` is one text from its start. `past`, a list of one list per layer, carries
        keys and values between calls.
        """
        return self.traced(ids, places, mask, past)[0]

    def traced(self, ids, places=None, mask=None, past=None):
        """`hidden`, and what led to it."""
        start = past[0][0].shape[2] if past and past[0] else 0
        traces, shape = Traces(), self.shape
        x = self.token_embd(ids)
        if places is None:
            places = torch.arange(start, start + ids.shape[1], device=ids.device)[None]
        cos, sin = (table[places].unsqueeze(1).to(x.dtype) for table in (self.cos, self.sin))
        for index, block in enumerate(self.blk):
            x, shown = block(x, cos, sin, mask, None if past is None else past[index])
            if index == shape.finder:
                traces.found = shown
            if index == shape.teller:
                traces.told = x
            if index == shape.valuer:
                traces.linked, traces.valued = shown, x
            if index == shape.decider:
                traces.labelled, traces.decided = shown, x
            if index == shape.copier:
                traces.copied = shown
        return self.output_norm(x), traces

    @torch.no_grad()
    def cut_anew(self, pieces):
        """Changes the vocabulary: token n is what the present tokens `pieces[n]` were together."""
        old = self.token_embd.weight
        rows = []
        for part in pieces:
            # As long as its pieces are: what is short would hardly be read, nor written.
            row = old[part].sum(0)
            rows.append(row * (old[part].norm(dim=1).mean() / row.norm()))
        self.token_embd = nn.Embedding.from_pretrained(torch.stack(rows), freeze=False)
        self.shape.vocabulary = len(rows)

    @torch.no_grad()
    def deepen(self, layers):
        """Adds blocks, evenly spread, that change nothing as yet: each a copy of the one below that adds nothing."""
        more = layers - self.shape.layers
        if not 0 <= more <= self.shape.layers:
            raise ValueError(f"from {self.shape.layers} layers to {layers}: at least as many, at most twice as many")
        below = {(2 * place + 1) * self.shape.layers // (2 * more) for place in range(more)}
        blocks = []
        for index, block in enumerate(self.blk):
            blocks.append(block)
            if index in below:
                blocks.append(copy.deepcopy(block))
                nn.init.zeros_(blocks[-1].attn_output.weight)
                nn.init.zeros_(blocks[-1].ffn_down.weight)
        self.blk = nn.ModuleList(blocks)
        self.shape.layers = layers

    @torch.no_grad()
    def widen(self, hidden):
        """Widens each block's feed forward, which changes nothing as yet: what the new neurons find is not passed on."""
        more = hidden - self.shape.hidden
        if more < 0:
            raise ValueError(f"from a feed forward of {self.shape.hidden} to {hidden}: at least as wide")
        for block in self.blk:
            for read in (block.ffn_gate, block.ffn_up):
                old = read.weight
                read.weight = nn.Parameter(torch.cat((old, torch.randn(more, old.shape[1]) * old.std())))
            old = block.ffn_down.weight
            block.ffn_down.weight = nn.Parameter(torch.cat((old, torch.zeros(old.shape[0], more)), 1))
        self.shape.hidden = hidden

    def looks(self, ids, places):
        """The queries and keys of the shown heads of the layer that finds words, each text of `ids` being by itself."""
        x = self.token_embd(ids)
        cos, sin = (table[places].unsqueeze(1).to(x.dtype) for table in (self.cos, self.sin))
        for block in self.blk[: self.shape.finder + 1]:
            x, shown = block(x, cos, sin)
        return shown

    def logits(self, states):
        return F.linear(states, self.token_embd.weight.to(states.dtype))

    @torch.no_grad()
    def generate(self, ids, stop, limit):
        """Greedy continuation of the list `ids`, up to and without the token `stop`."""
        past = [[] for _ in self.blk]
        feed, output = torch.tensor([ids]), []
        for _ in range(min(limit, self.shape.context - len(ids))):
            token = int(self.logits(self.hidden(feed, past=past)[:, -1]).argmax())
            if token == stop:
                return output, True
            output.append(token)
            feed = torch.tensor([[token]])
        return output, False


@torch.no_grad()
def mean(models, weights):
    """The model whose weights are the mean of those of `models`, which share a shape, weighed by `weights`."""
    if any(model.shape != models[0].shape for model in models):
        raise ValueError("models of different shapes have no mean")
    made = copy.deepcopy(models[0])
    shares = [weight / sum(weights) for weight in weights]
    for parameter, *parts in zip(made.parameters(), *(model.parameters() for model in models)):
        parameter.copy_(sum(share * part for share, part in zip(shares, parts)))
    return made
