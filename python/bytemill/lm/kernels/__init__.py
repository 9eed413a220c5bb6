"""Parts whose backward pass is written by hand, so that little is kept for it and memory is passed over less often.

Each has its plain twin, which says what it computes: `layers.rms_norm`, `layers.layer_norm`, `layers.gated`,
`activations.gelu`, `attention.scaled_dot_product_attention`. Tests hold the two equal in values and gradients.
"""
