"""Fixtures for every test."""

from tests.support.people import administrator, operator, outsider, viewer

__all__ = ["administrator", "operator", "outsider", "viewer"]
