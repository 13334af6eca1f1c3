"""A procedural tabletop: things, arms, rooms and rollouts from seeds, with the exact progress of any instruction."""
