"""A zero-shot test that needs no download: which of four passages goes on from here?

Held-out text is cut into items of `context` + `answer` tokens without overlap, spread evenly. The wrong
answers of an item are the right ones of three others, a quarter, a half and three quarters of the items
away. The model chooses the answer with the largest log-likelihood after the context; all have as many
tokens. By chance one in four is right.
"""

import torch

CHOICES = 4


def items_of(ids, count, context, answer):
    """[(context, [answers], index of the right one)]"""
    length = context + answer
    starts = [index * (len(ids) // length) // count * length for index in range(count)]
    answers = [ids[start + context : start + length] for start in starts]
    found = []
    for index, start in enumerate(starts):
        right = index % CHOICES
        others = [answers[(index + count * step // CHOICES) % count] for step in range(1, CHOICES)]
        choices = [*others[:right], answers[index], *others[right:]]
        found.append((ids[start : start + context], choices, right))
    return found


def scores(model, start, answers):
    """Log-likelihood of each answer after the context, which goes through the model once."""
    chosen = torch.tensor(answers)
    first = model(input_ids=torch.tensor([start]), use_cache=True, logits_to_keep=1)
    cache = first.past_key_values
    cache.batch_repeat_interleave(len(answers))
    rest = model(input_ids=chosen[:, :-1], past_key_values=cache, use_cache=True).logits
    logits = torch.cat([first.logits.expand(len(answers), 1, -1), rest], dim=1).float()
    return logits.log_softmax(-1).gather(2, chosen[..., None]).sum((1, 2))


def accuracy(model, tokenizer, text, count, context=64, answer=16):
    """Share of the items whose right answer is chosen."""
    ids = tokenizer(text, verbose=False)["input_ids"]
    correct = 0
    model.eval()
    with torch.no_grad():
        for start, answers, right in items_of(ids, count, context, answer):
            correct += int(scores(model, start, answers).argmax()) == right
    return correct / count
