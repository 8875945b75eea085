"""Which release this is. Both ends of a connection are of the same one: messages have no other version."""

__version__ = "0.1.0.dev0"
