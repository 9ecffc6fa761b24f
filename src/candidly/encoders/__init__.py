"""Pretrained encoders of images and texts as scikit-learn transformers: `ImageEncoder` and `TextEncoder`."""

from candidly.encoders.estimators import ImageEncoder, TextEncoder
from candidly.encoders.networks import ENCODERS

__all__ = ["ENCODERS", "ImageEncoder", "TextEncoder"]
