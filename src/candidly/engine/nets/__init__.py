"""Networks, and what a training step computes with: losses, samplers, views of images, neighbours, kernels."""
