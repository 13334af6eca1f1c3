"""The catalog of writers: the layouts in which `rewardlab convert` writes a dataset."""

from rewardlab.data.writers.contract import Writer
from rewardlab.data.writers.lerobot_writer import LEROBOT
from rewardlab.data.writers.robometer_writer import ROBOMETER
from rewardlab.data.writers.roboreward_writer import ROBOREWARD

WRITERS: dict[str, Writer] = {writer.name: writer for writer in (ROBOREWARD, LEROBOT, ROBOMETER)}
