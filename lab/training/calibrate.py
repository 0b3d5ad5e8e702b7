"""How sure a model has to be before it calls: a threshold that is moved in the weights, after training.

A call begins with its marker. Where an answer begins, the marker's logit is lowered by one amount for all questions, so that
those are refused that the model was least sure of. Its architecture has no bias to lower it by: what is taken from the marker's
row is a direction that the states have where an answer begins, and hardly elsewhere. The marker is read by the same row, so that
what follows it moves a little, too.
"""

import numpy as np
import torch

from .encode import SPOKEN
from .render import ASSISTANT, STYLES


@torch.no_grad()
def raise_threshold(model, tokenizer, data, by, batch=8):
    """Lowers the markers' logits by `by` where an answer begins, in place; `data` (train.Data) has such places.

    Returns how far they fell there, and how far they moved at the other places where something is said, both as means.
    """
    starts, others = [], []
    for at in range(0, len(data) // batch * batch, batch):
        made = data.batch(np.arange(at, at + batch), hints=False)
        states = model.hidden(made.ids, made.places, made.mask)[:, :-1]
        said = made.says == SPOKEN
        first = said & (made.ids[:, :-1] == tokenizer.token_to_id(ASSISTANT))
        starts.append(states[first])
        others.append(states[said & ~first])
    starts, others = torch.cat(starts).double(), torch.cat(others).double()
    # Both kinds of places count alike, though there are many more of the second.
    rows = torch.cat((starts / len(starts) ** 0.5, others / len(others) ** 0.5))
    wanted = torch.zeros(len(rows), dtype=rows.dtype)
    wanted[: len(starts)] = len(starts) ** -0.5
    direction = torch.linalg.lstsq(rows, wanted[:, None]).solution[:, 0] * by
    for start, _ in STYLES.values():
        model.token_embd.weight[tokenizer.token_to_id(start)] -= direction.float()
    return float((starts @ direction).mean()), float((others @ direction).abs().mean())
