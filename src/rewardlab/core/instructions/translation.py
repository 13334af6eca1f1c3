"""Five other languages with their lexicon: commands from English and back."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial

from rewardlab.core.errors import NotApplicable
from rewardlab.core.instructions.lexicon import KNOWN_WORDS, VERBS
from rewardlab.core.instructions.parser import (
    DETERMINERS,
    DIRECTIONS,
    PRONOUNS,
    Clause,
    Command,
    NounPhrase,
    PrepPhrase,
    capitalised,
    locative_of,
    words_of,
)

LANGUAGES = ("es", "de", "zh", "ja", "sw")


def _table(text: str) -> dict[str, tuple[str, ...]]:
    rows = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    return {name: tuple(cells) for name, *cells in rows}


NOUNS = _table("""
    drawer | m cajón | f Schublade | 抽屉 | 引き出し | 9 droo
    cabinet | m armario | m Schrank | 柜子 | 戸棚 | 5 kabati
    cupboard | m armario | m Schrank | 柜子 | 戸棚 | 5 kabati
    door | f puerta | f Tür | 门 | ドア | 3 mlango
    cabinet door | f puerta del armario | f Schranktür | 柜门 | 戸棚の扉 | 3 mlango wa kabati
    window | f ventana | n Fenster | 窗户 | 窓 | 5 dirisha
    bottle | f botella | f+ Flasche | 瓶子 | 瓶 | 9 chupa
    lid | f tapa | m Deckel | 盖子 | 蓋 | 7 kifuniko
    oven | m horno | m Ofen | 烤箱 | オーブン | 9 oveni
    trash bin | m cubo de basura | m+ Mülleimer | 垃圾桶 | ゴミ箱 | 5 pipa la taka
    box | f caja | f+ Kiste | 盒子 | 箱 | 5 sanduku
    cup | f taza | f+ Tasse | 杯子 | カップ | 7 kikombe
    bowl | m cuenco | f+ Schüssel | 碗 | ボウル | 5 bakuli
    plate | m plato | m+ Teller | 盘子 | 皿 | 9 sahani
    pot | f olla | m+ Topf | 锅 | 鍋 | 9 sufuria
    pan | f sartén | f+ Pfanne | 平底锅 | フライパン | 7 kikaango
    can | f lata | f+ Dose | 罐子 | 缶 | 5 kopo
    beaker | m vaso de precipitados | n+ Becherglas | 烧杯 | ビーカー |
    teapot | f tetera | f+ Teekanne | 茶壶 | ティーポット | 5 birika
    basket | f cesta | m+ Korb | 篮子 | かご | 7 kikapu
    tray | f bandeja | n+ Tablett | 托盘 | トレイ | 5 sinia
    carrot | f zanahoria | f Karotte | 胡萝卜 | にんじん | 9 karoti
    mushroom | m champiñón | m Pilz | 蘑菇 | きのこ | 3 uyoga
    banana | m plátano | f Banane | 香蕉 | バナナ | 9 ndizi
    pear | f pera | f Birne | 梨 | 梨 | 5 pea
    apple | f manzana | m Apfel | 苹果 | りんご | 5 tufaha
    pineapple | f piña | f Ananas | 菠萝 | パイナップル | 5 nanasi
    bread | m pan | n Brot | 面包 | パン | 3 mkate
    fish | m pescado | m Fisch | 鱼 | 魚 | 3 samaki
    cloth | m paño | n Tuch | 布 | 布 | 7 kitambaa
    towel | f toalla | n Handtuch | 毛巾 | タオル | 9 taulo
    fork | m tenedor | f Gabel | 叉子 | フォーク | 3 uma
    spoon | f cuchara | m Löffel | 勺子 | スプーン | 7 kijiko
    knife | m cuchillo | n Messer | 刀 | ナイフ | 7 kisu
    sponge | f esponja | m Schwamm | 海绵 | スポンジ |
    marker | m rotulador | m Filzstift | 记号笔 | マーカー |
    pen | m bolígrafo | m Stift | 笔 | ペン | 9 kalamu
    cube | m cubo | m Würfel | 方块 | キューブ | 3 mchemraba
    block | m bloque | m Klotz | 积木 | ブロック |
    ball | f pelota | m Ball | 球 | ボール | 3 mpira
    puck | m disco | m Puck | 圆盘 | パック |
    nut | f tuerca | f Mutter | 螺母 | ナット | 9 nati
    nail | m clavo | m Nagel | 钉子 | 釘 | 3 msumari
    peg | f clavija | m Zapfen | 木桩 | ペグ |
    hole | m agujero | n Loch | 孔 | 穴 | 5 shimo
    goal | f meta | n Ziel | 目标 | ゴール | 5 lengo
    shelf | m estante | n Regal | 架子 | 棚 | 9 rafu
    table | f mesa | m Tisch | 桌子 | テーブル | 9 meza
    sink | m fregadero | n Spülbecken | 水槽 | 流し | 5 sinki
    button | m botón | m Knopf | 按钮 | ボタン | 7 kitufe
    handle | f manija | m Griff | 把手 | 取っ手 | 7 kishikio
    dial | m dial | m Drehknopf | 旋钮 | ダイヤル |
    faucet | m grifo | m Wasserhahn | 水龙头 | 蛇口 | 5 bomba la maji
    water | e agua | n Wasser | 水 | 水 | 6 maji
    object | m objeto | n Objekt | 物体 | 物 | 7 kitu
""")

# Spanish gives the masculine and the feminine, German the stem, Swahili the stem or, after @, what follows "-a".
ADJECTIVES = _table("""
    red | rojo/roja | rot | 红色的 | 赤い | ekundu
    blue | azul/azul | blau | 蓝色的 | 青い | @bluu
    green | verde/verde | grün | 绿色的 | 緑色の | @kijani
    yellow | amarillo/amarilla | gelb | 黄色的 | 黄色い | @njano
    orange | naranja/naranja | orangefarben | 橙色的 | オレンジ色の | @rangi ya machungwa
    pink | rosa/rosa | rosafarben | 粉色的 | ピンク色の | @rangi ya waridi
    purple | morado/morada | violett | 紫色的 | 紫色の | @zambarau
    brown | marrón/marrón | braun | 棕色的 | 茶色の | @kahawia
    white | blanco/blanca | weiß | 白色的 | 白い | eupe
    black | negro/negra | schwarz | 黑色的 | 黒い | eusi
    gray | gris/gris | grau | 灰色的 | 灰色の | @kijivu
    grey | gris/gris | grau | 灰色的 | 灰色の | @kijivu
    left | de la izquierda/de la izquierda | link | 左边的 | 左の | @kushoto
    right | de la derecha/de la derecha | recht | 右边的 | 右の | @kulia
""")

# {o} is the object, {t} the target, {s} the source. In German {o} and {t} are accusative, {s} and {d} dative ({d} is
# the target), {lege} is "lege" or "stelle" and {ihn} the pronoun of the object; {lo} is the Spanish pronoun.
# {e} is the object in the dative.
_SPANISH_GERMAN = _table("""
    open | abre {o} | öffne {o}
    close | cierra {o} | schließe {o}
    push and close | empuja y cierra {o} | schiebe {o} zu
    put in | pon {o} en {t} | {lege} {o} in {t}
    put on | pon {o} sobre {t} | {lege} {o} auf {t}
    put under | pon {o} debajo de {t} | {lege} {o} unter {t}
    fetch in | recoge {o} y pon{lo} en {t} | nimm {o} und {lege} {ihn} in {t}
    fetch on | recoge {o} y pon{lo} sobre {t} | nimm {o} und {lege} {ihn} auf {t}
    stack on | apila {o} sobre {t} | staple {o} auf {t}
    slide in | desliza {o} dentro de {t} | schiebe {o} in {t}
    insert in | inserta {o} en {t} | stecke {o} in {t}
    push to | empuja {o} hasta {t} | schiebe {o} zu {d}
    pour from in | vierte {o} de {s} en {t} | gieße {o} aus {s} in {t}
    pour in | vierte {o} en {t} | gieße {o} in {t}
    pick up | recoge {o} | hebe {o} auf
    pick up out | saca {o} de {t} | nimm {o} aus {d}
    pick up off | recoge {o} de {t} | nimm {o} von {d}
    remove out | saca {o} de {t} | nimm {o} aus {d}
    remove off | quita {o} de {t} | nimm {o} von {d}
    lift | levanta {o} | hebe {o} hoch
    press | presiona {o} | drücke {o}
    press down | presiona {o} hacia abajo | drücke {o} nach unten
    press from above | presiona {o} desde arriba | drücke {o} von oben
    push | empuja {o} | schiebe {o}
    pull | tira de {o} | ziehe {o}
    touch | toca {o} | berühre {o}
    turn | gira {o} | drehe {o}
    hammer | martilla {o} | schlage {o} mit dem Hammer ein
    wipe | limpia {o} | wische {o} ab
    wipe with | limpia {o} con {t} | wische {o} mit {d} ab
    fold | dobla {o} | falte {o}
    fold from left to right | dobla {o} de izquierda a derecha | falte {o} von links nach rechts
    move to the left | mueve {o} hacia la izquierda | bewege {o} nach links
    move to the right | mueve {o} hacia la derecha | bewege {o} nach rechts
    move from left to right | mueve {o} de izquierda a derecha | bewege {o} von links nach rechts
    move from right to left | mueve {o} de derecha a izquierda | bewege {o} von rechts nach links
    flip upright | endereza {o} | stelle {o} aufrecht hin
    uncap | destapa {o} | nimm die Kappe von {e} ab
""")
_CHINESE_JAPANESE = _table("""
    open | 打开{o} | {o}を開けてください
    close | 关上{o} | {o}を閉めてください
    push and close | 推{o}并关上 | {o}を押して閉めてください
    put in | 把{o}放进{t}里 | {o}を{t}に入れてください
    put on | 把{o}放在{t}上 | {o}を{t}の上に置いてください
    put under | 把{o}放在{t}下面 | {o}を{t}の下に置いてください
    fetch in | 拿起{o},把它放进{t}里 | {o}を取って、{t}に入れてください
    fetch on | 拿起{o},把它放在{t}上 | {o}を取って、{t}の上に置いてください
    stack on | 把{o}叠在{t}上 | {o}を{t}の上に積んでください
    slide in | 把{o}推进{t}里 | {o}を{t}の中に滑らせて入れてください
    insert in | 把{o}插进{t}里 | {o}を{t}に差し込んでください
    push to | 把{o}推到{t}那里 | {o}を{t}まで押してください
    pour from in | 把{o}从{s}里倒进{t}里 | {o}を{s}から{t}に注いでください
    pour in | 把{o}倒进{t}里 | {o}を{t}に注いでください
    pick up | 拿起{o} | {o}を取り上げてください
    pick up out | 从{t}里拿起{o} | {t}から{o}を取ってください
    pick up off | 从{t}上拿起{o} | {t}から{o}を取ってください
    remove out | 把{o}从{t}里拿走 | {t}から{o}を取り除いてください
    remove off | 把{o}从{t}上拿走 | {t}から{o}を取り除いてください
    lift | 举起{o} | {o}を持ち上げてください
    press | 按下{o} | {o}を押してください
    press down | 把{o}向下按 | {o}を下に押してください
    press from above | 从上方按下{o} | {o}を上から押してください
    push | 推{o} | {o}を押してください
    pull | 拉{o} | {o}を引いてください
    touch | 触摸{o} | {o}に触れてください
    turn | 转动{o} | {o}を回してください
    hammer | 用锤子敲{o} | ハンマーで{o}を打ってください
    wipe | 擦{o} | {o}を拭いてください
    wipe with | 用{t}擦{o} | {t}で{o}を拭いてください
    fold | 折叠{o} | {o}を折りたたんでください
    fold from left to right | 把{o}从左向右折叠 | {o}を左から右に折りたたんでください
    move to the left | 把{o}移到左边 | {o}を左に動かしてください
    move to the right | 把{o}移到右边 | {o}を右に動かしてください
    move from left to right | 把{o}从左边移到右边 | {o}を左から右に動かしてください
    move from right to left | 把{o}从右边移到左边 | {o}を右から左に動かしてください
    flip upright | 把{o}扶正 | {o}をまっすぐに立ててください
    uncap | 打开{o}的盖子 | {o}のキャップを外してください
""")
_SWAHILI = _table("""
    open | fungua {o}
    close | funga {o}
    push and close | sukuma na ufunge {o}
    put in | weka {o} ndani ya {t}
    put on | weka {o} juu ya {t}
    put under | weka {o} chini ya {t}
    fetch in | chukua {o} na uweke ndani ya {t}
    fetch on | chukua {o} na uweke juu ya {t}
    stack on | weka {o} juu ya {t}
    slide in | telezesha {o} ndani ya {t}
    insert in | ingiza {o} ndani ya {t}
    push to | sukuma {o} hadi kwenye {t}
    pour from in | mimina {o} kutoka kwenye {s} hadi kwenye {t}
    pour in | mimina {o} kwenye {t}
    pick up | chukua {o}
    pick up out | chukua {o} kutoka kwenye {t}
    pick up off | chukua {o} kutoka kwenye {t}
    remove out | ondoa {o} kutoka kwenye {t}
    remove off | ondoa {o} kutoka kwenye {t}
    lift | inua {o}
    press | bonyeza {o}
    press down | bonyeza {o} kuelekea chini
    press from above | bonyeza {o} kutoka juu
    push | sukuma {o}
    pull | vuta {o}
    touch | gusa {o}
    turn | zungusha {o}
    hammer | piga {o} kwa nyundo
    wipe | pangusa {o}
    wipe with | pangusa {o} kwa {t}
    fold | kunja {o}
    fold from left to right | kunja {o} kutoka kushoto kwenda kulia
    move to the left | sogeza {o} upande wa kushoto
    move to the right | sogeza {o} upande wa kulia
    move from left to right | sogeza {o} kutoka kushoto kwenda kulia
    move from right to left | sogeza {o} kutoka kulia kwenda kushoto
    flip upright | simamisha {o}
    uncap | ondoa kifuniko cha {o}
""")
SENTENCE_PATTERNS = {
    name: (*translations, *_CHINESE_JAPANESE[name], *_SWAHILI[name]) for name, translations in _SPANISH_GERMAN.items()
}


_SAME_VERB = {"place": "put", "set": "put", "lay": "put", "shut": "close", "rotate": "turn", "take out": "remove"}
_SAME_PREPOSITION = {"into": "in", "inside": "in", "onto": "on", "on top of": "on"}
_GERMAN_ARTICLES = {
    ("the", "acc"): {"m": "den", "f": "die", "n": "das"},
    ("the", "dat"): {"m": "dem", "f": "der", "n": "dem"},
    ("a", "acc"): {"m": "einen", "f": "eine", "n": "ein"},
    ("a", "dat"): {"m": "einem", "f": "einer", "n": "einem"},
}
_GERMAN_PRONOUNS = {"m": "ihn", "f": "sie", "n": "es"}
_SWAHILI_PREFIX = {"3": "mw", "5": "j", "6": "m", "7": "ch", "9": "ny"}
_SWAHILI_LINK = {"3": "wa", "5": "la", "6": "ya", "7": "cha", "9": "ya"}


def translate(command: Command, code: str) -> str:
    """Return the command in a language, or with only its nouns in it (`en+es`); NotApplicable if a word is missing."""
    if code.startswith("en+"):
        renamed = command.map_noun_phrases(partial(_rename, code=code[3:])).text
        said = (phrase.preposition for clause in command.clauses for phrase in clause.prep_phrases)
        endings = (each for each in said if each not in DIRECTIONS and not each[0].isdigit())
        if renamed == command.text or any(words_of(ending) & DETERMINERS for ending in endings):
            raise NotApplicable("all of its nouns must be objects or places")
        return command.write(renamed)
    pattern, clause, phrases = _sentence(command)
    template = _look_up(SENTENCE_PATTERNS, pattern, code)
    text = template.format_map(_fill(clause.object, phrases, code))
    text = re.sub(r"\bde el\b", "del", text) if code == "es" else text
    text = text.replace("zu dem ", "zum ").replace("zu der ", "zur ") if code == "de" else text
    ending = command.ending.replace(".", "。").replace("!", "!") if code in {"zh", "ja"} else command.ending
    return (capitalised(text) if command.capital else text) + ending


def _rename(noun_phrase: NounPhrase, code: str) -> NounPhrase:
    if noun_phrase.noun in PRONOUNS:
        return noun_phrase
    name = _noun(noun_phrase, code)[1]
    if name.lower() in KNOWN_WORDS:
        raise NotApplicable(f"{name!r} in {code} reads as an English word: another noun is needed")
    return replace(noun_phrase, noun=name)


def _look_up(table: dict[str, tuple[str, ...]], word: str, code: str) -> str:
    found = table[word.lower()][LANGUAGES.index(code)] if word.lower() in table else ""
    if not found:
        raise NotApplicable(f"the {code} lexicon lacks {word[:40]!r}, and nothing is half translated")
    return found


def _sentence(command: Command) -> tuple[str, Clause, tuple[PrepPhrase, ...]]:
    """Return the name of the sentence pattern, the clause that holds the object, and the named places in order."""
    first, *others = command.clauses
    if not others and first.verb != "pick and place":
        verb = _SAME_VERB.get(first.verb, first.verb)
        prepositions = [_preposition(phrase) for phrase in first.prep_phrases]
        if verb in {"pick up", "remove"} and prepositions == ["from"]:
            inside = first.prep_phrases[0].object and locative_of(first.prep_phrases[0].object) == "in"
            prepositions = ["out" if inside else "off"]
        return " ".join([verb, *prepositions]), first, first.prep_phrases
    last = others[0] if others else first
    fetched = first.verb in {"pick up", "grab", "grasp", "pick", "pick and place"} and not (
        others and first.prep_phrases
    )
    preposition = _preposition(last.prep_phrases[0]) if len(last.prep_phrases) == 1 else ""
    again = not others or (last.object.noun in PRONOUNS and last.verb in {"put", "place", "set", "stack"})
    if len(others) > 1 or not fetched or not again or preposition not in {"in", "on"}:
        raise NotApplicable("it needs a sentence pattern that is translated, such as 'put the cup on the plate'")
    return f"fetch {preposition}", first, last.prep_phrases


def _preposition(phrase: PrepPhrase) -> str:
    preposition = _SAME_PREPOSITION.get(phrase.preposition, phrase.preposition)
    # What is "in" a plate lies on it.
    return "on" if preposition == "in" and phrase.object and locative_of(phrase.object) == "on" else preposition


def _fill(noun_phrase: NounPhrase, phrases: tuple[PrepPhrase, ...], code: str) -> dict[str, str]:
    """Return the words for the slots of a pattern."""
    named = [phrase.object for phrase in phrases if phrase.object]
    words = {"o": _inflect(noun_phrase, code, "acc"), "e": _inflect(noun_phrase, code, "dat")}
    if named:
        words |= {"t": _inflect(named[-1], code, "acc"), "d": _inflect(named[-1], code, "dat")}
        words["s"] = _inflect(named[0], code, "dat")
    gender = _noun(noun_phrase, code)[0]
    words |= {"lege": "stelle" if gender.endswith("+") else "lege", "lo": "lo" if gender == "m" else "la"}
    return words | {"ihn": _GERMAN_PRONOUNS.get(gender[:1], "")}


def _noun(noun_phrase: NounPhrase, code: str) -> tuple[str, str]:
    if noun_phrase.modifiers:
        raise NotApplicable(f"{noun_phrase.text[:40]!r} must be a noun without adjectives, which are not translated")
    if noun_phrase.determiner not in {"", "the", "a", "an"}:
        raise NotApplicable(f"the {code} lexicon lacks {noun_phrase.determiner!r}, and nothing is half translated")
    word = _look_up(NOUNS, noun_phrase.noun, code)
    gender, _, name = word.partition(" ") if code not in {"zh", "ja"} else ("", "", word)
    return gender, name


def _adjectives(noun_phrase: NounPhrase, code: str) -> list[str]:
    return [_look_up(ADJECTIVES, word, code) for word in noun_phrase.adjectives]


def _inflect(noun_phrase: NounPhrase, code: str, case: str) -> str:
    """Return a noun phrase in words of one language, in a case ("acc" or "dat") where that makes a difference."""
    if code in {"zh", "ja"}:
        return "".join([*_adjectives(noun_phrase, code), _noun(noun_phrase, code)[1]])
    gender, noun = _noun(noun_phrase, code)
    adjectives = _adjectives(noun_phrase, code)
    indefinite = noun_phrase.determiner in {"a", "an"}
    if code == "es":
        article = {"m": "un", "f": "una", "e": "un"} if indefinite else {"m": "el", "f": "la", "e": "el"}
        return " ".join([article[gender], noun, *(word.split("/")[0 if gender == "m" else 1] for word in adjectives)])
    if code == "de":
        kind, sex = "a" if indefinite else "the", gender[0]
        ending = "e" if case == "acc" and sex != "m" else "en"
        ending = "es" if (kind, case, sex) == ("a", "acc", "n") else ending
        return " ".join([_GERMAN_ARTICLES[kind, case][sex], *(stem + ending for stem in adjectives), noun])
    link, prefix = _SWAHILI_LINK[gender], _SWAHILI_PREFIX[gender]
    return " ".join([noun, *(f"{link} {word[1:]}" if word[0] == "@" else prefix + word for word in adjectives)])


# Back to English: only whole sentences of the patterns above, with noun phrases of the tables.

_SLOT_WORDS = {"lege": "(?:lege|stelle)", "ihn": "(?:ihn|sie|es)", "lo": "(?:lo|la)"}
_ENGLISH_PREPOSITION = {"out": "out of"}
_ENGLISH_TOO = {"disco", "meta"}  # nouns of another language that an English sentence may mean as they stand
_ENDING = re.compile(r"[.!。!]+$")


def to_english(text: str) -> str:
    """Return the English of a command in one of the languages; empty where it is no such command.

    Nouns of another language in an English sentence become English too.
    """
    bare = _ENDING.sub("", text.strip()).lower()
    for code in LANGUAGES:
        if sentence := _read_sentence(_uncontracted(bare, code), code):
            return sentence
    renamed = _foreign_noun().sub(lambda found: _nouns_by_name()[found[0]], bare)
    return renamed if renamed != bare and _begins_with_verb(renamed) else ""


def _begins_with_verb(text: str) -> bool:
    return any(text.startswith(f"{verb} ") for verb in VERBS)


def _uncontracted(text: str, code: str) -> str:
    if code == "es":
        return re.sub(r"\bdel\b", "de el", text)
    return (
        re.sub(r"\bzu(m|r)\b", lambda found: {"m": "zu dem", "r": "zu der"}[found[1]], text) if code == "de" else text
    )


def _read_sentence(text: str, code: str) -> str:
    phrases = _english_phrases(code)
    for patterns, english in _sentence_readers(code):
        for pattern in patterns:  # a noun may hold a word that also stands between two slots
            found = pattern.fullmatch(text)
            slots = {name: phrases.get(words) for name, words in found.groupdict().items()} if found else {}
            if slots and all(slots.values()):
                return english.format(**slots)
    return ""


@cache
def _sentence_readers(code: str) -> tuple[tuple[tuple[re.Pattern[str], ...], str], ...]:
    """Return, for each sentence pattern of a language, how it is matched and the English with the same slots."""
    readers = []
    for name, templates in SENTENCE_PATTERNS.items():
        parts = re.split(r"\{(\w+)\}", _uncontracted(templates[LANGUAGES.index(code)].lower(), code))
        slots = [slot for slot in parts[1::2] if slot not in _SLOT_WORDS]
        patterns = tuple(
            re.compile(
                "".join(
                    re.escape(part) if not at % 2 else _SLOT_WORDS.get(part) or f"(?P<{part}>{some})"
                    for at, part in enumerate(parts)
                )
            )
            for some in (".+?", ".+")
        )
        readers.append((patterns, _english_pattern(name, slots)))
    return tuple(readers)


def _english_pattern(name: str, slots: list[str]) -> str:
    """Return the English of a sentence pattern, with the slots that a language has in it."""
    the_object = "{o}" if "o" in slots else "{e}"
    target = "{t}" if "t" in slots else "{d}"
    if name.startswith("fetch "):
        return f"pick up {the_object} and put it {name.removeprefix('fetch ')} {target}"
    verb = max((verb for verb in VERBS if f"{name} ".startswith(f"{verb} ")), key=len)
    rest = name[len(verb) :].strip()
    if not {"t", "d", "s"} & set(slots):
        return f"{verb} {the_object} {rest}".strip()
    *source, last = rest.split()
    last = "from" if verb == "remove" else last
    return f"{verb} {the_object} {'from {s} ' if source else ''}{_ENGLISH_PREPOSITION.get(last, last)} {target}"


@cache
def _english_phrases(code: str) -> dict[str, str]:
    """Return every noun phrase of the tables with at most one adjective, from the language to English."""
    found: dict[str, str] = {}
    for determiner in ("the", "a"):
        for noun in NOUNS:
            for adjectives in ((), *((word,) for word in ADJECTIVES)):
                phrase = NounPhrase(determiner, adjectives, noun)
                for words in _inflections(phrase, code):
                    found.setdefault(_uncontracted(words.lower(), code), phrase.text)
    return found


def _inflections(phrase: NounPhrase, code: str) -> Iterator[str]:
    try:
        yield from (_inflect(phrase, code, case) for case in ("acc", "dat"))
    except NotApplicable:  # no word for it
        return


@cache
def _nouns_by_name() -> dict[str, str]:
    """Return the English of Spanish and German nouns that are no English words."""
    found: dict[str, str] = {}
    for noun in NOUNS:
        for code in ("es", "de"):
            name = _noun(NounPhrase("", (), noun), code)[1].lower()
            if name not in KNOWN_WORDS | _ENGLISH_TOO:
                found.setdefault(name, noun)
    return found


@cache
def _foreign_noun() -> re.Pattern[str]:
    longest_first = sorted(_nouns_by_name(), key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\b")
