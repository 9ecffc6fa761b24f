"""Networks, losses, samplers, image augmentation, nearest neighbours and fused kernels."""
