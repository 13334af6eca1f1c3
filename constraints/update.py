"""Write the newest versions that fit together into constraints/py311.txt and its neighbours, one file per Python.

python constraints/update.py            (needs uv)

A version must have a wheel for Linux on x86-64 and aarch64 and for macOS 14. The files hold `name==version` alone, so
that they serve every mirror: `pip install -c constraints/py311.txt rewardlab`.
"""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-apple-darwin")
WHAT = ("pyproject.toml", "--all-extras", "--group", "dev", "--group", "release")
MACOS = {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
PLAIN = ("--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:", "--upgrade")


def resolved(python: str, platform: str, *options: str) -> dict[str, str]:
    """Return the version of each package, as uv resolves all extras and groups for one Python and platform."""
    where = ("--python-version", python, "--python-platform", platform)
    command = ["uv", "pip", "compile", *WHAT, *PLAIN, *where, *options]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | MACOS, stdout=subprocess.PIPE, text=True, check=True)
    return dict(line.split("==") for line in done.stdout.splitlines() if not line.startswith("#"))


def main() -> None:
    """Write one file per Python; what the first platform chose binds the next ones."""
    for python in PYTHONS:
        file, versions = ROOT / "constraints" / f"py{python.replace('.', '')}.txt", dict[str, str]()
        for platform in PLATFORMS:
            file.write_text("".join(f"{name}=={versions[name]}\n" for name in sorted(versions)), encoding="utf-8")
            versions |= resolved(python, platform, "--constraints", str(file))
        file.write_text("".join(f"{name}=={versions[name]}\n" for name in sorted(versions)), encoding="utf-8")
        print(f"{file.relative_to(ROOT)}: {len(versions)} packages")


if __name__ == "__main__":
    main()
