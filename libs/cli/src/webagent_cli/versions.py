"""The policy versions that a run published, as its directory has them."""

from webagent_cli.runs import Run

MANIFEST = "manifest.json"


def newest_version(run: Run) -> int:
    """The highest complete version; 0: the base model."""
    names = (manifest.parent.name for manifest in (run.path / "policies").glob(f"*/{MANIFEST}"))
    return max((int(name) for name in names if name.isdigit()), default=0)
