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


def accuracy(model, tokenizer, text, count, context=64, answer=16):
    """Share of the items whose right answer is chosen."""
    ids = tokenizer(text, verbose=False)["input_ids"]
    correct = 0
    model.eval()
    with torch.no_grad():
        for start, answers, right in items_of(ids, count, context, answer):
            batch = torch.tensor([start + choice for choice in answers])
            logits = model(input_ids=batch, use_cache=False, logits_to_keep=answer + 1).logits[:, :-1].float()
            chosen = torch.tensor(answers)
            scores = logits.log_softmax(-1).gather(2, chosen[..., None]).sum((1, 2))
            correct += int(scores.argmax()) == right
    return correct / count
