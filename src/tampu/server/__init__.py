"""Everything that talks to a server; nothing else in tampu does."""
