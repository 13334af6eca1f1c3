"""What the perturbation paper states of three kinds of reward models, shown beside sampled and measured numbers.

Source: Table 1, section 3.3 and section 3.4 of "Perturbation-Based Robustness Analysis of Vision-Language Reward
Models for Robotics".
"""

STATED_ACCURACY = {  # Table 1: accuracy at severity 4
    "general": {"visual": 0.805, "semantic": 0.884, "temporal": 0.832, "domain": 0.815},
    "tuned": {"visual": 0.918, "semantic": 0.841, "temporal": 0.938, "domain": 0.889},
    "ensemble": {"visual": 0.926, "semantic": 0.920, "temporal": 0.931, "domain": 0.883},
}
STATED_THRESHOLD = {
    "general": "1",
    "tuned": "3-5",
    "ensemble": "4-5",
}  # severity at which each becomes unreliable
STATED_TAU = {"general": {0: 0.97, 4: 0.82}}  # Kendall's tau within an episode, mean over categories, by severity
