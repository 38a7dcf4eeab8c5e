"""Networks: the U-Net that every method of the paper's tables shares."""

from mona_train.networks.unet import UNet, UNetOutput

__all__ = ["UNet", "UNetOutput"]
