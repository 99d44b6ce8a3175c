"""Staleness is counted in updates of the weights, whatever numbers they were published under."""

import math

from webagent_trainer.lineage import Lineage


def test_staleness_is_the_number_of_updates_since() -> None:
    lineage = Lineage()
    for version in (1, 2, 3):
        lineage.advance(version)
    assert [lineage.staleness(version) for version in (3, 2, 1, 0)] == [0, 1, 2, 3]
    assert (lineage.version, lineage.parent) == (3, 2)


def test_restored_weights_published_again_are_not_newer() -> None:
    lineage = Lineage([[0], [1]])
    lineage.rename(5)
    assert lineage.staleness(1) == lineage.staleness(5) == 0
    assert lineage.version == 5


def test_versions_of_a_line_that_was_cut_off_are_infinitely_stale() -> None:
    lineage = Lineage([[0], [1]])
    lineage.rename(5)
    assert lineage.staleness(3) == math.inf
    assert Lineage(lineage.state()).state() == lineage.state()
