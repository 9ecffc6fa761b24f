"""Settings of the whole suite: one thread, so that bits repeat, and the same examples in every run."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")
