"""Studies: compare tokenizers by the language models they make."""

from bytemill.experiment.runner import run_study
from bytemill.experiment.study import Study, load_study

__all__ = ["Study", "load_study", "run_study"]
