"""Data parallelism from scratch: each strategy is a module, and an entry of `lm.strategies.STRATEGIES`.

Every process computes the gradients of its share of a batch, and the strategies average them with the collectives of
`torch.distributed`. They differ in when they do so, and in what each process holds. All are used alike:

    parallel = BucketedParallel(model)      # equal weights in every process
    loss(parallel(inputs)).backward()
    parallel.finish()                       # the gradients are those of the whole batch
    optimizer.step()

Each module begins with its cost per step for n processes: its messages, and the bytes that a process sends. B is the
bytes of all gradients and P the number of parameter tensors. A ring sends 2 (n − 1) / n of a buffer's bytes from each
process to all-reduce it, and half of that to gather it from shards or to reduce it to shards.
"""
