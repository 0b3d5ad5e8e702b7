"""Rows as token ids on disk, and which of the tokens the assistant speaks."""

import numpy as np

from .render import ASSISTANT, END, render


def text(row):
    return render(row.messages, row.tools, row.style)


def encode(rows, tokenizer, folder):
    """Writes ids.npy, told.npy and ends.npy to `folder`; returns the number of tokens."""
    assistant, end = tokenizer.token_to_id(ASSISTANT), tokenizer.token_to_id(END)
    ids, told, ends, size = [], [], [], 0
    for row in rows:
        row_ids = np.array(tokenizer.encode(text(row)).ids, np.uint16)
        ids.append(row_ids)
        told.append(spoken(row_ids, assistant, end))
        size += len(row_ids)
        ends.append(size)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "ids.npy", np.concatenate(ids))
    np.save(folder / "told.npy", np.concatenate(told))
    np.save(folder / "ends.npy", np.array(ends, np.int64))
    return size


def spoken(ids, assistant, end):
    """True where the assistant's text stands, its end token included, its role tag left out."""
    mask, speaking = np.zeros(len(ids), bool), False
    for place, token in enumerate(ids):
        if speaking:
            mask[place] = True
            speaking = token != end
        elif token == assistant:
            speaking = True
    return mask
