"""Tuning: supervised (SFT), from preferences (DPO), and by rewards (GRPO and its relatives).

`responses` has what all three begin with: ids of prompts with responses, the mask of the response, and its
log-probabilities. `losses` are those of SFT and DPO, `policy_gradient` that of rewards.
"""
