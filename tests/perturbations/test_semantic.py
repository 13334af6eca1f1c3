"""Semantic perturbations: any text in, sane text out; stronger means more; never half translated."""

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardlab.core.episode import Episode, Label, episode_from_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.core.instructions.parser import fix_articles, gerund, parse, participle
from rewardlab.data import open_dataset
from rewardlab.perturbations import SEMANTIC
from rewardlab.perturbations.contract import Perturbation, PerturbedEpisode
from rewardlab.testing import check_perturbation

BY_NAME = {entry.name: entry for entry in SEMANTIC}
DONE = Label(5, True)

REAL = tuple(
    """
    Close the toilet; Close the white lid of the toilet; Fold the cloth from left to right; Hand the pineapple to human;
    Hand the pineapple to the outstretched hand; Open a drawer; Pick a nut out of the a peg;
    Pick and place a puck onto a shelf; Pick up a nut and place it onto a peg; Pick up a puck from a hole;
    Pick up the pink object and place it into the bowl; Press a button; Press a handle down; Push and close a window;
    Remove the pink bowl from the tray; Slide a plate into a cabinet; Take out the cup under the coffee machine;
    Touch the index finger of the outstretched hand; add pepper to the green bowl; close the drawer;
    close the right cabinet door; collect the fork to the yellow box; flip the pot upright; move the cloth to the left;
    move the orange cup from left to right; open the bottle; open the red drawer; open the red trash bin;
    open the right cabinet; place the beaker into the pink bowl; place the can into the tray;
    place the fish into the basket; pour the water from teapot into bowl; put banana on plate; put blue cup in sink;
    put the bread in the oven; put the carrot on the plate; put the marker into the pen cup;
    put the mushroom in the pot; put the pear in the yellow plate; put the yellow plate in the sink;
    stack the red cube on the gray cube; stir the pot; uncap the red pen; push the puck to the goal;
    insert the peg into the hole; close the window; turn the dial; hammer the nail; press the button from above;
    put the marker in the cup; move the pot from the left burner to the right burner;
    pick up the red block and stack it on the blue block; wipe the table with the cloth; fold the towel;
    open the top drawer of the cabinet, then put the apple in it; Rotate the faucet clockwise.
    """.replace("\n    ", " ")
    .strip()
    .split("; ")
)

ODD = (
    "🍎", "put the 🍎 in the bowl", "ضع الكوب على الطاولة", "放下杯子", "drawer", "open", "glorp wug snarf", "a", "...",
    "  open the drawer  ", 'say "open the drawer"', "open the drawer!!", "open (the) drawer; now?", "don't open it",
    "move 3 blocks 2.5 cm to the left", "open the " + "very " * 5000 + "red drawer", "PUT THE CUP IN THE SINK",
    "put the cup, the plate and the bowl in the sink", "open  the  drawer", "Open The Red Drawer", "{o} %s {0}", "\\1",
)  # fmt: skip

EVERY_ENTRY = pytest.mark.parametrize("entry", SEMANTIC, ids=lambda entry: entry.name)


def make(instruction: str, truth: Label = DONE, number: int = 0) -> Episode:
    return episode_from_frames(np.full((2, 4, 4, 3), number, np.uint8), instruction, label=truth)


PEERS = [make("open the microwave", number=1), make("wash the spoon", number=2), make("fold the napkin", number=3)]


def change(entry: Perturbation, text: str, severity: int, seed: int = 0) -> PerturbedEpisode | None:
    try:
        return entry(make(text), severity, seed, PEERS)
    except NotApplicable:
        return None


def write(name: str, text: str, severity: int, seed: int = 0) -> str | None:
    changed = change(BY_NAME[name], text, severity, seed)
    return changed.episode.instruction if changed else None


def test_the_family_is_whole_and_says_what_it_does() -> None:
    assert len(BY_NAME) == len(SEMANTIC) >= 19
    for entry in SEMANTIC:
        assert entry.summary.endswith("."), entry.name
        assert entry.channel == "instruction"


@EVERY_ENTRY
def test_keeps_the_contract(entry: Perturbation) -> None:
    first = make("put the red cup on the plate")
    check_perturbation(entry, [first, make("close the drawer", Label(None, False), number=4), *PEERS])


def check_output(entry: Perturbation, text: str, severity: int) -> None:
    first, again = change(entry, text, severity), change(entry, text, severity)
    assert (first is None) == (again is None)
    if first is None or again is None:
        return
    assert first.episode.instruction == again.episode.instruction
    assert first.episode.instruction.strip(), "empty"
    assert first.episode.instruction.isprintable()
    assert first.expect in {"same", "lower", "relabel", "undefined"}
    if first.expect == "same":
        assert first.episode.instruction != text


@EVERY_ENTRY
@settings(max_examples=25, deadline=None, derandomize=True)
@given(text=st.text(max_size=60).filter(lambda text: bool(text.strip()) and text.isprintable()))
def test_any_text_gives_sane_text_or_a_reason(entry: Perturbation, text: str) -> None:
    for severity in (1, 2, 3, 4):
        check_output(entry, text, severity)


WORDS = (
    *("open", "close", "put", "pick", "up", "place", "move", "the", "a", "an", "red", "orange", "left", "right"),
    *("drawer", "cup", "plate", "apple", "in", "into", "on", "from", "to", "and", "then", "it", "of", "not", "two"),
    *("3", ",", ".", "under", "with", "nail", "hand", "hammer"),
)


@pytest.mark.slow
@EVERY_ENTRY
@settings(max_examples=40, deadline=None, derandomize=True)
@given(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=9))
def test_any_row_of_robot_words_gives_sane_text_or_a_reason(entry: Perturbation, words: list[str]) -> None:
    for severity in (1, 2, 3, 4):
        check_output(entry, " ".join(words), severity)


@EVERY_ENTRY
@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:20])
def test_odd_text_gives_sane_text_or_a_reason(entry: Perturbation, text: str) -> None:
    for severity in (1, 4):
        check_output(entry, text, severity)


@EVERY_ENTRY
def test_real_instructions_stay_well_formed(entry: Perturbation) -> None:
    typed = {"typo_keyboard", "char_edit", "ocr_confusion", "case_spacing"}
    for text in REAL:
        for severity in (1, 2, 3, 4):
            written = write(entry.name, text, severity)
            if written and entry.name not in typed:
                assert "  " not in written
                assert written == written.strip()
                if entry.name != "word_order":
                    assert fix_articles(written) == written, "a or an"


def overlap_of_words(one: str, other: str) -> float:
    common = Counter(one.split()) & Counter(other.split())
    return 2 * common.total() / (len(one.split()) + len(other.split()))


def overlap_of_letters(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


GROWING = (
    *("typo_keyboard", "char_edit", "ocr_confusion", "case_spacing", "polite_filler", "irrelevant_detail"),
    *("completion_claim", "metadata_leak", "prompt_injection"),
)


@pytest.mark.parametrize("name", GROWING)
def test_stronger_leaves_less_of_the_text(name: str) -> None:
    for overlap in (overlap_of_words, overlap_of_letters):
        means = [
            float(np.mean([overlap(text, str(write(name, text, severity))) for text in REAL]))
            for severity in (1, 2, 3, 4)
        ]
        assert means[0] < 1
        assert all(later <= earlier + 1e-9 for earlier, later in pairwise(means)), means
        assert means[3] < means[0]


@pytest.mark.parametrize("name", ["typo_keyboard", "char_edit", "ocr_confusion"])
def test_stronger_typos_extend_the_weaker_ones_word_by_word(name: str) -> None:
    for text in REAL:
        versions = [text.split(" "), *(str(write(name, text, severity)).split(" ") for severity in (1, 2, 3, 4))]
        wrong = [{i for i, word in enumerate(words) if word != versions[0][i]} for words in versions]
        assert wrong[1] <= wrong[2] <= wrong[3] <= wrong[4]
        assert len(wrong[1]) == 1
        if len(text.split()) >= 6:
            assert len(wrong[4]) == 4


def test_a_slip_never_writes_another_thing_or_colour() -> None:
    for seed in range(40):
        for name in ("typo_keyboard", "char_edit", "ocr_confusion"):
            words = set(str(write(name, "put the red cup on the pan", 4, seed)).split())
            assert not words & {"bed", "cap", "can", "pen", "pin", "pot", "pit", "pad"}


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("open the drawer", "the drawer is open"),
        ("put banana on plate", "the banana is on the plate"),
        ("collect the fork to the yellow box", "the fork is in the yellow box"),
        ("push the puck to the goal", "the puck is at the goal"),
        ("remove the bowl from the tray", "the bowl is no longer on the tray"),
        ("move the cloth to the left", "the cloth is further to the left than before"),
        ("flip the pot upright", "the pot is upright"),
        ("pick up the nut and place it onto a peg", "the nut is on a peg"),
        ("hand the pineapple to human", "the pineapple is with the human"),
        ("stir the pot", "the pot has been stirred"),
        ("close the windows", "the windows are closed"),
        ("take out the cup under the shelf", "the cup under the shelf has been taken out"),
    ],
)
def test_a_wish_becomes_the_state_that_fulfils_it(text: str, state: str) -> None:
    assert str(write("paraphrase", text, 4)).endswith(state)


@pytest.mark.parametrize(
    ("text", "passive"),
    [
        ("put the cup in the sink", "be put in the sink"),
        ("pick up the cup and place it on the shelf", "be picked up and placed on the shelf"),
        ("take out the cup under the shelf", "the cup under the shelf"),
        ("slide an apple into the box", "be slid into the box"),
    ],
)
def test_the_passive_keeps_every_part(text: str, passive: str) -> None:
    assert passive in str(write("paraphrase", text, 2))


@pytest.mark.parametrize("text", REAL)
def test_parsing_and_writing_gives_the_text_back(text: str) -> None:
    try:
        command = parse(text)
    except NotApplicable:
        assert text == "Pick a nut out of the a peg"
        return
    assert command.write(command.text) == text


def test_verb_forms() -> None:
    assert [gerund(verb) for verb in ("put", "close", "pick up", "pick and place")] == [
        "putting", "closing", "picking up", "picking and placing",
    ]  # fmt: skip
    assert [participle(verb) for verb in ("stir", "take out", "carry", "slide")] == [
        "stirred", "taken out", "carried", "slid",
    ]  # fmt: skip
    assert fix_articles("a apple, an cup, a unicorn, an hour") == "an apple, a cup, a unicorn, an hour"


TRANSLATIONS = {
    "Open a drawer": {
        "Abre un cajón", "Öffne eine Schublade", "打开抽屉", "引き出しを開けてください", "Fungua droo",
    },
    "put the carrot on the plate": {
        "pon la zanahoria sobre el plato", "lege die Karotte auf den Teller", "把胡萝卜放在盘子上",
        "にんじんを皿の上に置いてください", "weka karoti juu ya sahani",
    },
    "put blue cup in sink": {
        "pon la taza azul en el fregadero", "stelle die blaue Tasse in das Spülbecken", "把蓝色的杯子放进水槽里",
        "青いカップを流しに入れてください", "weka kikombe cha bluu ndani ya sinki",
    },
    "close the right cabinet door": {
        "cierra la puerta del armario de la derecha", "schließe die rechte Schranktür", "关上右边的柜门",
        "右の戸棚の扉を閉めてください", "funga mlango wa kabati wa kulia",
    },
    "Remove the pink bowl from the tray.": {
        "Quita el cuenco rosa de la bandeja.", "Nimm die rosafarbene Schüssel von dem Tablett.",
        "把粉色的碗从托盘上拿走。", "トレイからピンク色のボウルを取り除いてください。",
        "Ondoa bakuli la rangi ya waridi kutoka kwenye sinia.",
    },
    "stack the red cube on the gray cube": {
        "apila el cubo rojo sobre el cubo gris", "staple den roten Würfel auf den grauen Würfel",
        "把红色的方块叠在灰色的方块上", "赤いキューブを灰色のキューブの上に積んでください",
        "weka mchemraba mwekundu juu ya mchemraba wa kijivu",
    },
    "pick up the red cup and put it on the white plate": {
        "recoge la taza roja y ponla sobre el plato blanco", "nimm die rote Tasse und stelle sie auf den weißen Teller",
        "拿起红色的杯子,把它放在白色的盘子上", "赤いカップを取って、白い皿の上に置いてください",
        "chukua kikombe chekundu na uweke juu ya sahani nyeupe",
    },
    "pour the water from teapot into bowl": {
        "vierte el agua de la tetera en el cuenco", "gieße das Wasser aus der Teekanne in die Schüssel",
        "把水从茶壶里倒进碗里", "水をティーポットからボウルに注いでください",
        "mimina maji kutoka kwenye birika hadi kwenye bakuli",
    },
    "pull a black box": {
        "tira de una caja negra", "ziehe eine schwarze Kiste", "拉黑色的盒子", "黒い箱を引いてください",
        "vuta sanduku jeusi",
    },
}  # fmt: skip


@pytest.mark.parametrize("text", TRANSLATIONS)
def test_translations_are_those_checked_by_hand(text: str) -> None:
    written = {write("language", text, severity, seed) for severity in (1, 2, 4) for seed in range(12)}
    assert written == TRANSLATIONS[text]


def test_code_switching_renames_every_thing_and_nothing_else() -> None:
    written = {write("language", "put the carrot on the red plate", 3, seed) for seed in range(12)}
    assert written == {"put the zanahoria on the red plato", "put the Karotte on the red Teller"}


def test_nothing_is_half_translated() -> None:
    kept_on_purpose = {"puck", "dial", "hammer", "in"}  # the same in Spanish or German
    for text in REAL:
        english = {word.lower() for word in text.split()} - kept_on_purpose
        for seed in range(4):
            western, eastern = write("language", text, 1, seed), write("language", text, 2, seed)
            assert (western is None) == (eastern is None)
            assert not english & set(str(western).lower().split())
            assert eastern is None or not any("a" <= letter.lower() <= "z" for letter in eastern)
            assert not english & set(str(write("language", text, 4, seed)).lower().split())


def test_a_dropped_cell_says_why() -> None:
    with pytest.raises(NotApplicable, match="'glorp wug snarf': it must start with a verb"):
        BY_NAME["paraphrase"](make("glorp wug snarf"), 1, 0)
    with pytest.raises(NotApplicable, match="'🍎' is not a plain word"):
        BY_NAME["negation"](make("put the 🍎 in the bowl"), 1, 0)


def test_a_broad_share_of_real_instructions_is_covered() -> None:
    def share(name: str, severity: int) -> float:
        return float(np.mean([write(name, text, severity) is not None for text in REAL]))

    assert share("paraphrase", 2) > 0.95
    assert share("language", 1) > 0.7
    assert share("negation", 1) > 0.95
    assert share("object_swap", 1) > 0.9
    assert share("relation_flip", 3) > 0.6


@pytest.mark.parametrize(
    ("data", "name", "least"),
    [
        *(("sample", "paraphrase", 1.0), ("sample", "task_swap", 0.78), ("sample", "synonym", 0.75)),
        *(("sample-sim", "paraphrase", 0.95), ("sample-sim", "task_swap", 0.38), ("sample-sim", "word_order", 0.75)),
    ],
)
def test_applies_to_this_share_of_the_shipped_clips(data: str, name: str, least: float) -> None:
    episodes = open_dataset(data).episodes
    trials = [(episode, severity) for episode in episodes for severity in (1, 2, 3, 4)]
    assert sum(applies(BY_NAME[name], *trial, episodes) for trial in trials) >= least * len(trials)


def applies(entry: Perturbation, episode: Episode, severity: int, dataset: Sequence[Episode]) -> bool:
    try:
        entry(episode, severity, 0, dataset)
    except NotApplicable:
        return False
    return True
