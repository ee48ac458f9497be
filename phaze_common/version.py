"""The version of phaze."""

VERSION = "0.2.0"
