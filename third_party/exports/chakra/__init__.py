"""Chakra execution traces of an iteration, and the files with which ASTRA-sim simulates them."""

from third_party.exports.chakra.exporter import EXPORTER as EXPORTER
