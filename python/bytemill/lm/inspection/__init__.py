"""Look into a model: surprisal of a text, stages of sampling, attention and the logit lens."""

from bytemill.lm.inspection.inside import Trace, trace
from bytemill.lm.inspection.sampling_stages import SamplingStage, sampling_stages
from bytemill.lm.inspection.surprisal import Surprisal, surprisal

__all__ = ["SamplingStage", "Surprisal", "Trace", "sampling_stages", "surprisal", "trace"]
