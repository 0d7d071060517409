"""The SDK's version, sent in User-Agent."""

__version__ = "1.0.0"
