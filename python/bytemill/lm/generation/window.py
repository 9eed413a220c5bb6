"""Which ids a model reads when a text is longer than its context."""


def window_start(n_ids: int, context_length: int) -> int:
    """Return the position of the first id that is read to predict the id after `n_ids` ids.

    When the context is full, its older half is dropped: dropping one id would recompute the whole context for each new
    one. The start depends on the number of ids alone, so that a text has the same probabilities whether it is generated
    at once, continued, or scored.

    Args:
        n_ids: Number of ids so far, including the prompt.
        context_length: Ids that the model can read.

    >>> [window_start(n_ids, 4) for n_ids in range(1, 12)]
    [0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9]
    """
    n_kept = max(1, context_length // 2)
    step = context_length + 1 - n_kept
    n_steps = max(0, -(-(n_ids - context_length) // step))
    return n_steps * step
