"""The nouns, their files on disk, identity, chance and errors: what every other package stands on."""

__version__ = "0.2.0"
