"""The table of image patches with fewer of them than the literature draws."""

from bnaf.datasets.patches import draw_patches, read_pools
from bnaf.datasets.suite import SUITE


def with_few_patches(*counts):
    """Return what is known of BSDS300, so many patches drawn from a file of images."""

    def load(files):
        return draw_patches(read_pools(files[0]), counts), ()

    *others, images = SUITE["bsds300"].editions
    return SUITE["bsds300"]._replace(editions=(*others, images._replace(load=load)))
