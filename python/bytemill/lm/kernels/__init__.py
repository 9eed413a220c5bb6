"""Operations with a hand-written backward pass, which save little memory for it and read and write memory less often.

Reference implementations: `layers.rms_norm`, `layers.layer_norm`, `layers.gated`, `layers.gelu`,
`attention.scaled_dot_product_attention`. Tests compare values and gradients with them.
"""
