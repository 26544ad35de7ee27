"""Libraries that switch torch's checks off are imported first, by what leaves them on."""

from contextlib import suppress

from bnaf._torch import kept_validation

with kept_validation(), suppress(ImportError):
    import zuko  # noqa: F401
