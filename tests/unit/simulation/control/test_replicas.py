"""Which pods go when a deployment shrinks."""

from __future__ import annotations

from rightslice.simulation.control.replicas import PodState, victims


def test_order_of_deletion() -> None:
    pods = [
        PodState("old", 0.0, "n1", running=True, ready_s=100.0),
        PodState("doubled-1", 0.0, "n0", running=True, ready_s=100.0),
        PodState("doubled-2", 0.0, "n0", running=True, ready_s=900.0),
        PodState("cheap", 0.0, "n2", running=True, ready_s=100.0, deletion_cost=-1),
        PodState("loading", 0.0, "n3", running=True),
        PodState("pulling", 0.0, "n4"),
        PodState("unplaced", 0.0),
        PodState("dear", 0.0, "n5", running=True, ready_s=990.0, deletion_cost=10),
    ]
    assert victims(1000.0, pods, 8) == (
        "unplaced",
        "pulling",
        "loading",
        "cheap",
        "doubled-2",
        "doubled-1",
        "old",
        "dear",
    )
    assert victims(1000.0, pods, 0) == ()


def test_the_youngest_go_first() -> None:
    late = [PodState("a", 0.0, "n0", running=True, ready_s=0.0), PodState("b", 0.0, "n1", running=True, ready_s=999.0)]
    assert victims(1000.0, late, 1) == ("b",)
    born = [PodState("a", 0.0, "n0", running=True), PodState("b", 999.0, "n1", running=True)]
    assert victims(1000.0, born, 1) == ("b",)
    assert victims(1000.0, [*born, PodState("c", 1000.0, "n2", running=True)], 1) == ("c",)


def test_ages_of_one_power_of_two_are_equal() -> None:
    """A deployment that scaled up at once does not lose its replicas in the order of their names or births."""
    pods = [PodState(f"p{i}", float(i), f"n{i}", running=True, ready_s=100.0 + i) for i in range(20)]
    gone = victims(1000.0, pods, 20)
    assert sorted(gone) == sorted(pod.name for pod in pods)
    assert gone not in (tuple(pod.name for pod in pods), tuple(pod.name for pod in reversed(pods)))
    young = PodState("young", 990.0, "n99", running=True, ready_s=999.0)
    assert victims(1000.0, [*pods, young], 1) == ("young",)
