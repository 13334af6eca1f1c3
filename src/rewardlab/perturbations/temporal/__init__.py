"""Temporal perturbations: the stream loses, repeats or reorders frames before anyone looks at it."""

from rewardlab.perturbations.temporal.drops_and_freezes import (
    drop_random,
    drop_uniform,
    freeze_middle,
    hold_last,
    stutter,
)
from rewardlab.perturbations.temporal.frame_corruption import black_frames, frame_blend, splice_foreign
from rewardlab.perturbations.temporal.frame_order import (
    global_shuffle,
    jitter_index,
    local_shuffle,
    loop_twice,
    reverse,
)
from rewardlab.perturbations.temporal.playback_speed import slow_down, speed_up, time_warp
from rewardlab.perturbations.temporal.transmission_errors import bit_error, packet_loss
from rewardlab.perturbations.temporal.truncation_and_latency import crop_start, latency, truncate_end

TEMPORAL = (
    drop_uniform,
    drop_random,
    freeze_middle,
    stutter,
    hold_last,
    speed_up,
    slow_down,
    time_warp,
    jitter_index,
    local_shuffle,
    global_shuffle,
    reverse,
    loop_twice,
    truncate_end,
    crop_start,
    latency,
    black_frames,
    frame_blend,
    splice_foreign,
    packet_loss,
    bit_error,
)
