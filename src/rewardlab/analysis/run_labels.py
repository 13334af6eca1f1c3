"""What runs and their models are called: on a page of several runs, and on the command line."""

from collections.abc import Sequence

from rewardlab.analysis.display_names import model_meant, names_of_run
from rewardlab.core.errors import PlanError
from rewardlab.core.run import Run, open_run


def run_names(runs: Sequence[Run]) -> list[str]:
    """Return a name for each run: its folder's, with a number where two are alike. The same run twice is refused."""
    folders = [run.folder.resolve() for run in runs]
    if len(set(folders)) < len(folders):
        raise PlanError("the same run folder is named twice")
    names = [folder.name for folder in folders]
    return [f"{name} {place}" if names.count(name) > 1 else name for place, name in enumerate(names, start=1)]


def run_and_model(text: str) -> tuple[Run, str]:
    """Read `FOLDER` or `FOLDER::MODEL`, by its string or short name; a run that judged one model needs no name."""
    folder, _, model = text.partition("::")
    run = open_run(folder)
    judged, names = run.record.judged, names_of_run(run.record, run.record.plan.models)
    if not model and len(judged) != 1:
        raise PlanError(f"{folder} judged {len(judged)} models; say which one: {folder}::{names[judged[0]]}")
    return run, (model_meant(model, names) or model) if model else judged[0]
