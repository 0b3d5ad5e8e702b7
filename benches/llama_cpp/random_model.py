#!/usr/bin/env python3
"""A model of 0.5 B parameters with random weights, to time what a larger model than SmolLM2-135M costs.

usage: random_model.py VOCABULARY.gguf OUT.gguf

It has the shape of Llama, Q4_0 matrices, and the tokens of VOCABULARY.gguf, such as SmolLM2's. What it writes has no meaning.
Needs the Python packages gguf and numpy.
"""

import sys

import gguf
import numpy as np

LAYERS, WIDTH, HIDDEN, HEADS, SHARED, CONTEXT = 30, 896, 4864, 14, 2, 8192
TYPE = gguf.GGMLQuantizationType.Q4_0


def main(source, out):
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_name("random 0.5 B")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(SHARED)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    for key, field in reader.fields.items():
        if key.startswith("tokenizer."):
            inner = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), field.types[0], sub_type=inner)
    vocabulary = len(reader.get_field("tokenizer.ggml.tokens").contents())
    rng = np.random.default_rng(1)

    def matrix(name, rows, columns):
        values = rng.standard_normal((rows, columns), np.float32) * columns**-0.5
        writer.add_tensor(name, gguf.quants.quantize(values, TYPE), raw_dtype=TYPE)

    def norm(name):
        writer.add_tensor(name, np.ones(WIDTH, np.float32))

    matrix("token_embd.weight", vocabulary, WIDTH)
    norm("output_norm.weight")
    few = WIDTH // HEADS * SHARED
    for layer in range(LAYERS):
        norm(f"blk.{layer}.attn_norm.weight")
        norm(f"blk.{layer}.ffn_norm.weight")
        for name, rows, columns in (
            ("attn_q", WIDTH, WIDTH),
            ("attn_k", few, WIDTH),
            ("attn_v", few, WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", HIDDEN, WIDTH),
            ("ffn_up", HIDDEN, WIDTH),
            ("ffn_down", WIDTH, HIDDEN),
        ):
            matrix(f"blk.{layer}.{name}.weight", rows, columns)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
