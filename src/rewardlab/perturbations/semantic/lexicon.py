"""The closed robot lexicon: verbs, nouns, colours and prepositions, with their synonyms, hypernyms and opposites."""

from dataclasses import dataclass
from typing import Literal

# The state of the object when the verb is done: moved somewhere, held by the gripper, gone from a place, handed over,
# in the state that the verb names, or only touched.
ResultState = Literal["somewhere", "held", "gone", "given", "state", "touched"]
Locative = Literal["in", "on", "at"]  # the preposition of what is there: in a box, on a plate, at a goal


@dataclass(frozen=True)
class Verb:
    """A verb; `state` completes "the drawer {is} ..." once it is done."""

    synonyms: tuple[str, ...] = ()
    result: ResultState = "touched"
    opposite: str = ""
    state: str = ""


@dataclass(frozen=True)
class Noun:
    """A noun; `group` names the objects that could be asked for in its place."""

    group: str
    synonyms: tuple[str, ...] = ()
    hypernym: str = ""
    locative: Locative = "at"


def _moves(*synonyms: str) -> Verb:
    return Verb(synonyms, "somewhere")


VERBS: dict[str, Verb] = {
    "open": Verb(("open up",), "state", "close", "{is} open"),
    "close": Verb(("shut",), "state", "open", "{is} closed"),
    "shut": Verb(("close",), "state", "open", "{is} closed"),
    "push and close": Verb(("push and shut",), "state", "pull and open", "{is} closed"),
    "pull and open": Verb((), "state", "push and close", "{is} open"),
    "uncap": Verb(("take the cap off",), "state", "cap", "{has} no cap on"),
    "cap": Verb(("put the cap on",), "state", "uncap", "{has} the cap on"),
    "lock": Verb((), "state", "unlock", "{is} locked"),
    "unlock": Verb((), "state", "lock", "{is} unlocked"),
    "cover": Verb((), "state", "uncover", "{is} covered"),
    "uncover": Verb((), "state", "cover", "{is} not covered"),
    "turn on": Verb(("switch on",), "state", "turn off", "{is} on"),
    "turn off": Verb(("switch off",), "state", "turn on", "{is} off"),
    "switch on": Verb(("turn on",), "state", "switch off", "{is} on"),
    "switch off": Verb(("turn off",), "state", "switch on", "{is} off"),
    "fold": Verb(("fold over", "double over"), opposite="unfold"),
    "unfold": Verb(("spread out",), opposite="fold"),
    "put": _moves("place", "set"),
    "place": _moves("put", "set"),
    "set": _moves("put", "place"),
    "lay": _moves("put", "place"),
    "pick and place": _moves("pick up and put", "take and place"),
    "move": _moves("shift"),
    "bring": _moves("carry", "move"),
    "carry": _moves("bring", "move"),
    "transfer": _moves("move", "bring"),
    "stack": _moves("pile", "place"),
    "insert": _moves("put", "fit"),
    "slide": _moves("glide", "push"),
    "push": _moves("shove", "nudge"),
    "pull": _moves("tug", "draw"),
    "drag": _moves("pull", "draw"),
    "drop": _moves("let fall"),
    "add": _moves("transfer"),
    "collect": _moves("gather", "bring"),
    "pour": _moves("tip", "decant"),
    "throw": _moves("toss"),
    "sweep": _moves("brush"),
    "hang": _moves("suspend"),
    "pick up": Verb(("lift", "grab"), "held", "put down"),
    "pick": Verb(("take", "grab"), "held"),
    "grab": Verb(("grasp", "take hold of"), "held", "let go of"),
    "grasp": Verb(("grab", "take hold of"), "held", "let go of"),
    "take": Verb(("grab", "get"), "held"),
    "lift": Verb(("raise", "pick up"), "held", "lower"),
    "lift up": Verb(("raise", "pick up"), "held", "lower"),
    "raise": Verb(("lift",), "held", "lower"),
    "remove": Verb(("take", "take away"), "gone"),
    "take out": Verb(("remove", "pull out"), "gone"),
    "put down": Verb(("set down",)),
    "let go of": Verb(("release",)),
    "release": Verb(("let go of",)),
    "lower": Verb(("bring down",)),
    "hand": Verb(("give", "pass"), "given"),
    "give": Verb(("hand", "pass"), "given"),
    "pass": Verb(("hand", "give"), "given"),
    "flip": Verb(("turn",)),
    "turn": Verb(("rotate", "twist")),
    "rotate": Verb(("turn", "spin")),
    "twist": Verb(("turn", "rotate")),
    "press": Verb(("push",)),
    "touch": Verb(("make contact with",)),
    "reach": Verb(("get to",)),
    "tap": Verb(("touch lightly",)),
    "hit": Verb(("strike",)),
    "hammer": Verb(("pound",)),
    "wipe": Verb(("rub", "clean")),
    "clean": Verb(("clean up",)),
    "wash": Verb(("rinse",)),
    "stir": Verb(("mix",)),
    "squeeze": Verb(("compress",)),
    "shake": Verb(("jiggle",)),
    "cut": Verb(("slice",)),
}

_OPENABLE = "something that opens"
NOUNS: dict[str, Noun] = {
    "drawer": Noun(_OPENABLE, (), "storage compartment", "in"),
    "cabinet": Noun(_OPENABLE, ("cupboard",), "piece of furniture", "in"),
    "cupboard": Noun(_OPENABLE, ("cabinet",), "piece of furniture", "in"),
    "cabinet door": Noun(_OPENABLE, ("cupboard door",), "door"),
    "door": Noun(_OPENABLE),
    "window": Noun(_OPENABLE),
    "lid": Noun(_OPENABLE, ("cover",)),
    "toilet": Noun(_OPENABLE, (), "bathroom fixture", "in"),
    "oven": Noun(_OPENABLE, (), "kitchen appliance", "in"),
    "microwave": Noun(_OPENABLE, ("microwave oven",), "kitchen appliance", "in"),
    "fridge": Noun(_OPENABLE, ("refrigerator",), "kitchen appliance", "in"),
    "coffee machine": Noun(_OPENABLE, ("coffee maker",), "kitchen appliance"),
    "trash bin": Noun(_OPENABLE, ("garbage bin", "waste bin"), "container", "in"),
    "trash can": Noun(_OPENABLE, ("garbage can", "waste bin"), "container", "in"),
    "box": Noun(_OPENABLE, (), "container", "in"),
    "cup": Noun("vessel", ("drinking cup",), "drinking vessel", "in"),
    "mug": Noun("vessel", ("coffee mug",), "drinking vessel", "in"),
    "glass": Noun("vessel", ("drinking glass",), "drinking vessel", "in"),
    "pen cup": Noun("vessel", ("pen holder",), "container", "in"),
    "bowl": Noun("vessel", (), "dish", "in"),
    "plate": Noun("vessel", ("dinner plate",), "dish", "on"),
    "pot": Noun("vessel", ("cooking pot",), "piece of cookware", "in"),
    "pan": Noun("vessel", ("frying pan", "skillet"), "piece of cookware", "in"),
    "bottle": Noun("vessel", (), "container", "in"),
    "can": Noun("vessel", ("tin",), "container", "in"),
    "jar": Noun("vessel", (), "container", "in"),
    "beaker": Noun("vessel", ("laboratory beaker",), "container", "in"),
    "teapot": Noun("vessel", (), "container", "in"),
    "basket": Noun("vessel", (), "container", "in"),
    "tray": Noun("vessel", ("serving tray",), "flat carrier", "on"),
    "carrot": Noun("food", (), "vegetable"),
    "mushroom": Noun("food", (), "vegetable"),
    "eggplant": Noun("food", ("aubergine",), "vegetable"),
    "zucchini": Noun("food", ("courgette",), "vegetable"),
    "potato": Noun("food", (), "vegetable"),
    "tomato": Noun("food", (), "vegetable"),
    "corn": Noun("food", ("maize",), "vegetable"),
    "banana": Noun("food", (), "fruit"),
    "pear": Noun("food", (), "fruit"),
    "apple": Noun("food", (), "fruit"),
    "pineapple": Noun("food", (), "fruit"),
    "bread": Noun("food", (), "food item"),
    "fish": Noun("food", (), "animal"),
    "cloth": Noun("fabric", ("piece of cloth", "rag"), "piece of fabric", "on"),
    "rag": Noun("fabric", ("cloth",), "piece of fabric", "on"),
    "towel": Noun("fabric", ("hand towel",), "piece of fabric", "on"),
    "napkin": Noun("fabric", ("serviette",), "piece of fabric", "on"),
    "fork": Noun("utensil", ("table fork",), "utensil"),
    "spoon": Noun("utensil", ("table spoon",), "utensil"),
    "knife": Noun("utensil", ("table knife",), "utensil"),
    "spatula": Noun("utensil", (), "utensil"),
    "sponge": Noun("utensil", ("cleaning sponge",), "cleaning tool"),
    "marker": Noun("pen", ("felt-tip pen",), "writing tool"),
    "pen": Noun("pen", ("ink pen",), "writing tool"),
    "pencil": Noun("pen", ("lead pencil",), "writing tool"),
    "cube": Noun("block", ("block",), "object", "on"),
    "block": Noun("block", ("building block",), "object", "on"),
    "brick": Noun("block", ("building brick",), "object", "on"),
    "ball": Noun("block", (), "object"),
    "puck": Noun("block", ("disc",), "object"),
    "toy": Noun("block", ("plaything",), "object"),
    "stick": Noun("block", ("rod",), "object"),
    "nut": Noun("hardware", (), "fastener"),
    "nail": Noun("hardware", (), "fastener"),
    "screw": Noun("hardware", (), "fastener"),
    "peg": Noun("hardware", ("dowel",), "post", "on"),
    "hole": Noun("fixed", ("opening",), "gap", "in"),
    "goal": Noun("fixed", ("target",), "destination", "at"),
    "shelf": Noun("fixed", (), "piece of furniture", "on"),
    "table": Noun("fixed", ("tabletop",), "piece of furniture", "on"),
    "counter": Noun("fixed", ("countertop",), "work surface", "on"),
    "stove": Noun("fixed", ("cooker",), "kitchen appliance", "on"),
    "burner": Noun("fixed", ("hotplate",), "heat source", "on"),
    "sink": Noun("fixed", (), "basin", "in"),
    "button": Noun("control", (), "control"),
    "handle": Noun("control", ("handgrip",), "control"),
    "lever": Noun("control", (), "control"),
    "knob": Noun("control", ("rotary knob",), "control"),
    "dial": Noun("control", ("rotary dial",), "control"),
    "switch": Noun("control", (), "control"),
    "faucet": Noun("control", ("tap",), "control"),
    "water": Noun("liquid", (), "liquid"),
    "pepper": Noun("powder", (), "seasoning"),
    "salt": Noun("powder", (), "seasoning"),
    "human": Noun("person", ("person",)),
    "person": Noun("person", ("human",)),
    "hand": Noun("body", (), "body part", "in"),
    "finger": Noun("body", (), "body part"),
    "index finger": Noun("body", ("forefinger", "pointer finger"), "body part"),
    "object": Noun("anything", ("item",)),
    "item": Noun("anything", ("object",)),
    "thing": Noun("anything", ("object",)),
}

# Nouns that may be a part of, or another word for, nearly any object of a scene.
VAGUE_NOUNS = {
    *("object", "item", "thing", "lid", "door", "cover", "cap", "handle", "knob", "something"),
    *("everything", "anything", "container", "food", "toy", "tool", "one", "part", "furniture", "appliance"),
}

# For each group: objects of the same kind, of another kind, from elsewhere, and impossible ones.
COUNTERFACTUAL_OBJECTS: dict[str, tuple[tuple[str, ...], ...]] = {
    _OPENABLE: (
        ("dishwasher", "washing machine", "jewellery box"),
        ("laptop", "book", "wallet"),
        ("umbrella", "tent", "parachute"),
        ("volcano", "moon", "castle"),
    ),
    "vessel": (("jug", "vase", "bucket"), ("sponge", "book", "candle"), ("umbrella", "trumpet"), ("elephant", "moon")),
    "food": (("lemon", "onion", "cucumber"), ("sponge", "candle", "toy car"), ("umbrella", "trumpet"), ("elephant",)),
    "fabric": (("blanket", "scarf"), ("newspaper", "road map"), ("tent", "parachute"), ("rainbow", "cloud")),
    "utensil": (("whisk", "chopstick", "ladle"), ("candle", "toy car"), ("umbrella", "trumpet"), ("elephant",)),
    "pen": (("paintbrush", "crayon"), ("candle", "toy car"), ("umbrella", "trumpet"), ("elephant", "lighthouse")),
    "block": (("cylinder", "pyramid", "ring"), ("sponge", "candle"), ("umbrella", "trumpet"), ("elephant", "moon")),
    "hardware": (("bolt", "washer", "hook"), ("sponge", "candle"), ("umbrella", "trumpet"), ("elephant", "moon")),
    "control": (("crank", "pedal"), ("pillow", "bottle cap"), ("typewriter", "trumpet"), ("volcano", "moon")),
    "liquid": (("milk", "orange juice"), ("sand", "paint"), ("gravel", "perfume"), ("lava", "molten gold")),
    "powder": (("sugar", "flour"), ("sand", "paint"), ("gravel", "glitter"), ("lava", "molten gold")),
    "body": (("elbow", "shoulder"), ("sleeve", "shoe"), ("umbrella", "trumpet"), ("moon", "rainbow")),
}

# Each colour with others, from the nearest that nobody confuses with it to its opposite.
COLOUR_CONTRASTS: dict[str, tuple[str, str, str, str]] = {
    "red": ("purple", "yellow", "blue", "green"),
    "orange": ("white", "green", "purple", "blue"),
    "yellow": ("brown", "blue", "red", "purple"),
    "green": ("white", "orange", "purple", "red"),
    "blue": ("white", "green", "red", "orange"),
    "purple": ("red", "white", "green", "yellow"),
    "pink": ("white", "yellow", "blue", "green"),
    "brown": ("white", "purple", "green", "blue"),
    "white": ("green", "blue", "red", "black"),
    "black": ("green", "yellow", "red", "white"),
    "gray": ("purple", "green", "yellow", "red"),
    "grey": ("purple", "green", "yellow", "red"),
    "silver": ("purple", "green", "yellow", "red"),
}

ADJECTIVE_SYNONYMS = {
    **{colour: f"{colour}-coloured" for colour in COLOUR_CONTRASTS},
    **{"left": "left-hand", "right": "right-hand", "small": "little", "big": "large", "large": "big"},
}

OPPOSITE_DIRECTIONS = {
    **{"left": "right", "right": "left", "up": "down", "down": "up", "upwards": "downwards", "downwards": "upwards"},
    **{"clockwise": "counterclockwise", "counterclockwise": "clockwise", "forward": "backward"},
    **{"upright": "upside down", "backward": "forward", "top": "bottom", "bottom": "top", "upper": "lower"},
    **{"front": "back", "back": "front"},
}
OPPOSITE_PREPOSITIONS = {
    **{"on": "under", "onto": "under", "on top of": "underneath", "under": "on top of", "underneath": "on top of"},
    **{"in": "outside", "into": "outside", "inside": "outside", "outside": "inside", "above": "below"},
    **{"below": "above", "in front of": "behind", "behind": "in front of", "next to": "far away from"},
}
PREPOSITION_SYNONYMS = {
    **{"on": "on top of", "onto": "on top of", "in": "inside", "into": "inside", "under": "underneath"},
    **{"next to": "beside", "with": "using", "towards": "in the direction of"},
}


def find_noun(noun: str) -> Noun | None:
    """Return the entry of a noun, in the singular or the plural."""
    name = noun.lower()
    return NOUNS.get(name) or (NOUNS.get(name[:-1]) if name.endswith("s") else None)


# Everyday words that are one slip away from words of the lexicon.
_NEAR_WORDS = {
    *("van", "leg", "glue", "lot", "band", "land", "lace", "late", "gasket", "ray", "fray", "bed", "hat", "bat"),
    *("cat", "rat", "car", "cap", "lap", "map", "bag", "fin", "pin", "fox", "hen", "ten", "men", "bow", "owl"),
    *("bell", "wall", "fall", "call", "doll", "dish", "fist", "list", "cake", "lake", "boat", "coat", "goat", "bear"),
    *("ear", "pea", "tea", "sand", "fight", "light", "night", "tight", "sight", "gift", "love", "dove", "date"),
    *("gate", "slate", "rug", "hug", "bug", "mud", "hut", "but", "our", "out", "kid", "bid", "pool", "foil"),
}
# A slip of the pen must not turn one of these into another.
_NAMES = (*VERBS, *NOUNS, *COLOUR_CONTRASTS, *OPPOSITE_DIRECTIONS, *OPPOSITE_PREPOSITIONS, *PREPOSITION_SYNONYMS)
_NOUN_NAMES = (name for noun in NOUNS.values() for name in (*noun.synonyms, noun.hypernym))
KNOWN_WORDS = frozenset(word for name in (*_NAMES, *VAGUE_NOUNS, *_NOUN_NAMES, "not no off") for word in name.split())
REAL_WORDS = KNOWN_WORDS | _NEAR_WORDS
# Hypernyms that nearly every scene holds several of: they single out an object only together with an adjective.
BROAD_HYPERNYMS = frozenset({"object", "container", "control"})
