"""What a plan loads of the catalogue stays light."""

from __future__ import annotations

import subprocess
import sys

LOADED = """
import sys
from rightslice.catalogue.accelerators import accelerators, device
from rightslice.catalogue.engines import engine
from rightslice.catalogue.machines import machines
from rightslice.catalogue.mig import layouts
from rightslice.catalogue.platforms import platforms
machines(), platforms(), layouts("A100-SXM-80GB"), engine("vllm").defaults("0.33.0", device("L4"))
heavy = {"pydantic", "ruamel", "numpy", "yaml", "rich", "numba"}
print(sorted(heavy & {name.split(".")[0] for name in sys.modules}))
"""


def test_the_hardware_catalogue_loads_no_third_party_package() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"
