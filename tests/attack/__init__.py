"""Attacks: what strangers, crashes and bad luck do, and that it costs nothing."""
