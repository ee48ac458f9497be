"""The records of a launch that was read, under the name by which readers know them."""

from phaze.settings.launched import KeyKind as KeyKind
from phaze.settings.launched import LaunchKey as LaunchKey
from phaze.settings.launched import LaunchReading as LaunchReading
