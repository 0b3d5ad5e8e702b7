"""The bundled model: data, tokenizer, training, export, evaluation. See README.md in this folder."""
