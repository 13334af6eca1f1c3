"""Makes the study of plan.md, step by step; a step that is done is not done again, so run it until it ends.

    python results/robustness/make_study.py WORK --vision DINOV2 --language SMOLLM2 --text MINILM --droid DROID

WORK is a folder for everything that comes out. DINOV2 is DINOv2 ViT-S/14 as .onnx, SMOLLM2 is SmolLM2-135M-Instruct as
.gguf, MINILM a folder of all-MiniLM-L6-v2, DROID a folder of DROID demonstrations; without the last its clips are left
out. It ends with the kept trials and every table in this folder. --stop-after names the last step to do; --dry-run
prints the commands.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rewardlab.data import DATASETS
from rewardlab.studies.perturbation_paper.paper import PRECISE, group_of
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS
from rewardlab.worlds.metaworld.tasks import unseen_tasks

HERE = Path(__file__).resolve().parent
TRAIN_SMOL = HERE.parent / "vlm" / "train_smol.py"
FOLD, SEEDS = 0, (0, 1, 2)
EPISODES = {"seen": 5, "unseen": 15, "tabletop": 5}  # of a task; tasks that need precision have as many as unseen ones
COUNTS = ("100", "20", "16")  # rollouts, near misses and checks of a task that every training learns from
DROID_CLIPS = 200
PERTURBATIONS = "random:visual,random:semantic,random:temporal,random:domain,instruction_swap"
POCKETS = f"--rollouts {COUNTS[0]} --near-misses {COUNTS[1]} --val-rollouts {COUNTS[2]} --tabletop 0 --steps 1000"
ARMS = ("general", "tuned", "ensemble", "pair", "trained-plain", "trained-perturbed")
KEPT = ("strata", "contrasts", "perturbations", "reliability", "equation", "cost")  # of the tables
STEPS = ("rollouts", "assemble", "captions", "levels", "pair", "pockets", "collect", "data", "stress", "keep", "study")
Command = Sequence[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    for name in ("vision", "language", "text"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--droid", type=Path)
    parser.add_argument("--limit", type=int, default=0, help="use so many episodes alone")
    parser.add_argument("--epochs", type=int, nargs=2, default=(4, 4), help="of captions and of levels")
    parser.add_argument("--per-task", type=int, nargs=2, default=(80, 100), help="rollouts of captions and of levels")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="of trained pockets and pocket-large")
    parser.add_argument("--keep", type=Path, default=HERE, help="folder of the kept run and the tables")
    parser.add_argument("--stop-after", choices=STEPS, default=STEPS[-1])
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    for step in STEPS[: STEPS.index(options.stop_after) + 1]:
        done = options.work / f"{step}.done"
        if done.exists():
            continue
        print(f"== {step}", flush=True)
        if step in ("pair", "pockets") and not options.dry_run:
            share_rollouts(options.work, step)
        if step == "data" and not options.dry_run:
            join(options)
        if step == "keep" and not options.dry_run:
            shutil.rmtree(options.keep / "run", ignore_errors=True)
        run(list(commands(step, options)), dry=options.dry_run)
        if step == "study" and not options.dry_run:
            for name in (*(f"{name}.csv" for name in KEPT), "table1.md", "claims.md", "figure1.svg"):
                shutil.copyfile(options.work / "study" / name, options.keep / name)
        if not options.dry_run:
            done.touch()


def run(some: Sequence[Command], *, dry: bool) -> None:
    """Run commands side by side, and stop where one fails."""
    for command in some:
        print(shlex.join(command), flush=True)
    running = [] if dry else [subprocess.Popen(command) for command in some]
    codes = [process.wait() for process in running]
    if any(codes):
        sys.exit(f"a command ended with {max(codes)}; run the same again when it is mended")


def commands(step: str, options: argparse.Namespace) -> Iterator[Command]:
    """Yield the commands of a step, which may run side by side."""
    work = options.work
    rollouts, smol, pair = (str(work / name) for name in ("rollouts", "smol", "pair"))
    backbone = f"dino={options.vision}+{options.text}"
    if step == "rollouts":
        yield python(TRAIN_SMOL, "render", rollouts, "--counts", *COUNTS)
    if step == "assemble":
        parts = ("--vision", str(options.vision), "--language", str(options.language))
        yield rewardlab("train", "assemble", *parts, "--tokens", "16", "--pool", "2", "--out", smol)
    if step in ("captions", "levels"):
        kind = ("captions", "levels").index(step)
        shared = ("--epochs", str(options.epochs[kind]), "--per-task", str(options.per_task[kind]))
        for seed in SEEDS:
            places = ((smol, aligned(work, seed)), (aligned(work, seed), tuned(work, seed)))[kind]
            more = ((), ("--lora", "16", "--lr", "5e-4", "--compile"))[kind]
            yield python(TRAIN_SMOL, step, rollouts, *places, *shared, "--batch-size", "32", "--seed", str(seed), *more)
    if step == "pair":
        seeds = ("--seeds", ",".join(map(str, SEEDS)))
        yield rewardlab("train", "objective", "ordinal", "--backbone", backbone, *seeds, "--fold", str(FOLD),
                        "--perturbations", "none", "--out", pair)  # fmt: skip
    if step == "pockets":
        for seed in SEEDS:
            yield rewardlab("train", "pocket", "--variants", "pocket,pocket-plain", "--folds", str(FOLD), "--seed",
                            str(seed), *POCKETS.split(), "--device", options.device, "--out",
                            str(work / f"pockets-{seed}"))  # fmt: skip
    if step == "collect":
        held_out = unseen_tasks(FOLD)
        precise = [task for task in PROGRESS_SPECS if group_of(task) in PRECISE]
        shares = {
            "seen": [task for task in PROGRESS_SPECS if task not in (*held_out, *precise)],
            "unseen": [*held_out, *(task for task in precise if task not in held_out)],
        }
        for number, (name, tasks) in enumerate(shares.items()):
            yield rewardlab("collect", "metaworld", "--tasks", ",".join(tasks), "--episodes", str(EPISODES[name]),
                            "--balance", "--camera", "right,left", "--seed", str(1177 + number), "--out",
                            str(work / name))  # fmt: skip
        yield rewardlab("collect", "tabletop", "--episodes", str(EPISODES["tabletop"]), "--balance", "--seed", "1179",
                        "--out", str(work / "tabletop"))  # fmt: skip
    if step == "stress":
        models = named_models(work, options.device)
        limit = ("--limit", str(options.limit)) if options.limit else ()
        yield rewardlab("stress", *models.values(), str(work / "data"), "--perturbations", PERTURBATIONS, "--frames",
                        "uniform:8", "--batch-size", "16", "--max-failures", "0", "--name", ",".join(models), *limit,
                        "--out", str(work / "run"))  # fmt: skip
    if step == "keep":
        yield python(HERE / "keep_trials.py", str(work / "run"), str(options.keep / "run"))
    if step == "study":
        flags = [word for seed in SEEDS for arm in ARMS for word in ("--roles", f"{arm}={arm}-{seed}")]
        yield rewardlab(
            "study", "perturbation", str(options.keep / "run"), str(work / "study"), "--fold", str(FOLD), *flags
        )


def named_models(work: Path, device: str) -> dict[str, str]:
    """Return the models of the study by their short names."""
    found: dict[str, str] = {}
    there = "" if device == "cpu" else f"?device={device}"
    for seed in SEEDS:
        folder = work / "pair" / "trainings" / "dino" / "ordinal" / f"seed{seed}"
        pair, vlm = f"contrastive:{folder}?levels={folder / 'levels.json'}", f"hf:{tuned(work, seed)}"
        found |= {f"general-{seed}": f"hf:{aligned(work, seed)}", f"tuned-{seed}": vlm, f"pair-{seed}": pair}
        found[f"ensemble-{seed}"] = f"ensemble:{pair},pocket-large{there},{vlm}"
        for name, variant in (("trained-plain", "pocket-plain"), ("trained-perturbed", "pocket")):
            found[f"{name}-{seed}"] = f"pocket:{work / f'pockets-{seed}' / variant}-fold{FOLD}{there}"
    first = f"blank:hf:{tuned(work, SEEDS[0])}"
    found |= {"blank": first, "text-only": f"{first}?text_only=yes"}
    return found | {"pocket-large": f"pocket-large{there}"} | {name: name for name in ("pocket", "pocket-plain")}


def aligned(work: Path, seed: int) -> str:
    return str(work / f"aligned-{seed}")


def tuned(work: Path, seed: int) -> str:
    return str(work / f"tuned-{seed}")


def share_rollouts(work: Path, step: str) -> None:
    """Give a training the simulated rollouts that are there, so that they are not simulated again."""
    for name in ("pair",) if step == "pair" else (f"pockets-{seed}" for seed in SEEDS):
        shutil.copytree(work / "rollouts" / "rollouts", work / name / "rollouts", dirs_exist_ok=True)


def join(options: argparse.Namespace) -> None:
    """Join all clips in one dataset; of DROID only expectations are asked, so its rows lose what they state."""
    out, rows = options.work / "data", []
    shutil.rmtree(out, ignore_errors=True)
    sources = {name: options.work / name for name in EPISODES} | {"sample": DATASETS["sample"]}
    for source in (*sources.values(), *([options.droid] if options.droid else [])):
        found = [json.loads(line) for line in (source / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
        if source == options.droid:
            kept = [row for row in found if row.get("split") == "test"][:DROID_CLIPS]
            stated = ("success", "demonstration", "reward", "source", "split")  # DROID as a source means success
            found = [{key: value for key, value in row.items() if key not in stated} for row in kept]
        for row in found:
            name = row["file_name"] if source != options.droid else f"droid/{Path(row['file_name']).name}"
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / row["file_name"], out / name)
            if recorded := row.get("world", {}).get("file"):  # what a changed world is rendered from
                shutil.copyfile(source / recorded, out / recorded)
            rows.append(row | {"file_name": name})
    (out / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def python(script: Path, *words: str) -> Command:
    return (sys.executable, str(script), *words)


def rewardlab(*words: str) -> Command:
    return (sys.executable, "-m", "rewardlab", *words)


if __name__ == "__main__":
    main()
