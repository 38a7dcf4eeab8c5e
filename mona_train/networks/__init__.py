"""Networks: the U-Net that all methods share, and the heads on top of it."""

from mona_train.networks.unet import UNet, UNetOutput

__all__ = ["UNet", "UNetOutput"]
