"""The prompts that RoboReward prints, as hashes in paper_prompts.json; run this module on the paper to renew them.

`python -m tests.augmentation.paper_prompts PAPER.txt` reads the text of *RoboReward: General-Purpose Vision-Language
Reward Models for Robotics* as Markdown. What the conversion from PDF put in is taken out: fences of code, backslashes
before `_` and `*`, dollars around a formula with a blank at each side, the dash of a list before a number or `*` (where
the paper prints the same rubric as code there is none), ligatures and other compatibility characters (NFKC). White
space is normalised last: prompts that differ in line breaks and indentation alone are equal. Page numbers and words
that a line break divides are not in this text; a paper that has them gives other hashes.
"""

import json
import re
import sys
import unicodedata
from hashlib import sha256
from pathlib import Path

FILE = Path(__file__).with_name("paper_prompts.json")

# First and last words of each prompt in the paper; the rubric stands in others under its name.
ENDS = {
    "rubric": ("Rubric for end-of-episode progress", "Final state satisfies all requirements."),
    "rewrite": ("Rewrite the following task description", "Return only the corrected text."),
    "analysis": ("You are analyzing a video", "relevant objects given the task description."),
    "plan": ("Plan carefully and step by step.", "with their scores, one per line."),
    "command": ("Using the final suggested commands, generate", "with no quotes and no extra commentary."),
    "validate": ("You are a strict annotation validator", "or ANSWER: FALSE"),
    "describe": ("Describe the video in great detail.", ""),
}


def normal(text: str) -> str:
    """Return a text with single blanks in place of all white space."""
    return " ".join(text.split())


def text_hash(text: str) -> str:
    """Return the SHA-256 of a prompt, whatever its white space."""
    return sha256(normal(text).encode()).hexdigest()


def stored() -> dict[str, str]:
    """Return the hash of each prompt of the paper."""
    found: dict[str, str] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def paper_prompts(paper: str) -> dict[str, str]:
    """Return the prompts in the text of the paper, white space normalised and the rubric filled in."""
    plain = unicodedata.normalize("NFKC", paper).replace("\\_", "_").replace("\\*", "*")
    plain = re.sub(r"^```.*$", "", plain, flags=re.MULTILINE)
    plain = re.sub(r" \$([^$\n]*)\$ ", r"\1", plain)
    plain = normal(re.sub(r"^\s*- (?=\d\) |\d - |\* )", "", plain, flags=re.MULTILINE))
    found = {}
    for name, (first, last) in ENDS.items():
        start = plain.index(first)
        found[name] = plain[start : plain.index(last, start + len(first)) + len(last)] if last else first
    return {name: text.replace("{RUBRIC}", found["rubric"]) for name, text in found.items()}


if __name__ == "__main__":
    hashes = {name: text_hash(text) for name, text in paper_prompts(Path(sys.argv[1]).read_text("utf-8")).items()}
    FILE.write_text(json.dumps(hashes, indent=2) + "\n", encoding="utf-8")
